// The page of the quickstart: an example of an application's own sign-in. It calls
// /auth with the typed client and cookies.
import { createClient } from "/client/index.js"
import { svg } from "./qr.js"

const one = (selector, within = document) => within.querySelector(selector)
const all = (selector, within = document) => within.querySelectorAll(selector)

const kit = createClient()
const get = (path) => kit.get("/auth" + path)
const post = (path, body = {}) => kit.post("/auth" + path, body)

// What the page shows.

const screens = ["signin", "signup", "mailcode", "sent", "reset", "second", "account"]

function show(name) {
	for (const id of screens) one("#" + id).hidden = id !== name
	for (const error of all(".error")) error.textContent = ""
	if (name !== "account") one(`#${name} input:not([hidden])`)?.focus()
}

const text = (name, value) => all(`[data-text="${name}"]`).forEach((element) => { element.textContent = value })

function notice(message, bad = false) {
	one("#notice").textContent = message
	one("#notice").hidden = !message
	one("#notice").classList.toggle("bad", bad)
}

function element(tag, className, ...children) {
	const node = document.createElement(tag)
	if (className) node.className = className
	node.append(...children)
	return node
}

// row returns a line of a list: a name, a smaller line and a button.
function row(name, detail, label, act, ...badges) {
	const button = element("button", "small", label)
	button.onclick = () => busy(button, act)
	return element("li", "row", element("div", "grow", element("b", "", name), " ", ...badges, element("small", "", detail)), button)
}

// busy runs the action of a button and shows its error.
async function busy(button, act, error = one(".error", button.closest(".card")) ?? one("#account-error")) {
	button.disabled = true
	error.textContent = ""
	try {
		await act()
	} catch (failure) {
		if (failure.name === "NotAllowedError") return // the user has canceled
		const wait = failure.status === 429 && failure.retryAfterMs
		error.textContent = wait ? `Too many tries. Wait ${wait / 1000} s.` : failure.message
	} finally {
		button.disabled = false
	}
}

function ago(time) {
	const seconds = (new Date(time) - Date.now()) / 1000
	const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" })
	for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]])
		if (Math.abs(seconds) >= size) return words.format(Math.round(seconds / size), unit)
	return "just now"
}

// browserName returns a short description of a User-Agent.
function browserName(agent) {
	const find = (names) => names.find(([pattern]) => pattern.test(agent))?.[1]
	const browser = find([[/Edg\//, "Edge"], [/Firefox\//, "Firefox"], [/OPR\//, "Opera"], [/Chrome\//, "Chrome"], [/Safari\//, "Safari"], [/curl\//, "curl"]])
	const system = find([[/iPhone|iPad/, "iOS"], [/Android/, "Android"], [/Windows/, "Windows"], [/Mac OS/, "macOS"], [/Linux/, "Linux"]])
	return [browser ?? "A browser", system && "on " + system].filter(Boolean).join(" ")
}

// Signing in.

let user = null

// enter continues after a sign-in, or shows the form of the second factor.
async function enter(result) {
	if (result?.twoFactorRedirect) return askSecond(result.twoFactorMethods)
	await refresh()
}

let second = "totp"

async function askSecond(methods) {
	second = methods.includes("totp") ? "totp" : methods.includes("otp") ? "otp" : "backup"
	if (second === "otp") await post("/two-factor/send-otp")
	showSecond()
}

function showSecond() {
	const [label, how] = {
		totp: ["Code", "Enter the code that your authenticator app shows."],
		otp: ["Code", "Enter the code that we mailed to you."],
		backup: ["Backup code", "Enter one of the codes that you saved."],
	}[second]
	show("second")
	one("#second-label").textContent = label
	one("#second-how").textContent = how
	one('[data-act="backup"]').hidden = second === "backup"
}

function address() {
	const input = one('#signin [name="email"]')
	if (!input.reportValidity()) throw Object.assign(new Error(), { name: "NotAllowedError" })
	text("address", input.value)
	return input.value
}

// Passkeys.

async function signInByPasskey() {
	const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(await get("/passkey/generate-authenticate-options"))
	const credential = await navigator.credentials.get({ publicKey })
	await enter(await post("/passkey/verify-authentication", { response: credential.toJSON() }))
}

async function addPasskey() {
	const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(await get("/passkey/generate-register-options"))
	const credential = await navigator.credentials.create({ publicKey })
	await post("/passkey/verify-registration", { response: credential.toJSON(), name: browserName(navigator.userAgent) })
	await listPasskeys()
}

async function listPasskeys() {
	const passkeys = await get("/passkey/list-user-passkeys")
	one("#passkeys").replaceChildren(...passkeys.map((key) => row(
		key.name ?? "Passkey", `Added ${ago(key.createdAt)}${key.backedUp ? ", synchronised" : ""}`, "Remove",
		async () => { await post("/passkey/delete-passkey", { id: key.id }); await listPasskeys() },
	)))
}

// The account.

async function refresh() {
	const session = await get("/get-session")
	user = session?.user
	if (!user) return show("signin")
	text("name", user.name || user.email)
	text("email", user.email)
	all('[data-value="email"]').forEach((input) => { input.value = user.email })
	text("initials", (user.name || user.email).split(/\s+/).map((word) => word[0]).slice(0, 2).join("").toUpperCase())
	badge("#verified", user.emailVerified, "confirmed", "not confirmed")
	one("#unverified").hidden = user.emailVerified
	showTwoStep(user.twoFactorEnabled)
	await Promise.all([listPasskeys(), listDevices()])
	show("account")
}

function badge(selector, on, yes, no) {
	one(selector).textContent = on ? yes : no
	one(selector).classList.toggle("on", on)
}

function showTwoStep(on) {
	badge("#two-step", on, "on", "off")
	one('[data-form="enable"]').hidden = on
	one('[data-form="disable"]').hidden = !on
	for (const id of ["#setup", "#backup"]) one(id).hidden = true
}

function showBackup(codes) {
	one("#codes").replaceChildren(...codes.map((code) => element("li", "", code)))
	one("#backup").hidden = false
}

async function listDevices() {
	const { items } = await get("/devices")
	one("#devices").replaceChildren(...items.map((device) => row(
		device.name || browserName(device.userAgent), `${device.ip} · ${ago(device.lastSeenAt)}`, "Sign out",
		async () => {
			await post("/devices/revoke", { deviceId: device.id })
			await (device.current ? refresh() : listDevices())
		},
		...(device.current ? [element("span", "badge on", "this device")] : []),
	)))
}

// The actions of the forms and buttons.

const forms = {
	password: async (data) => enter(await post("/sign-in/email", data)),
	signup: async (data) => {
		await post("/sign-up/email", { ...data, callbackURL: "/" })
		await refresh()
	},
	mailcode: async (data) => enter(await post("/sign-in/email-otp", { email: one('[data-text="address"]').textContent, otp: data.otp })),
	reset: async (data) => {
		await post("/reset-password", { ...data, token: query.get("token") })
		notice("Your password was changed. Sign in with it.")
		show("signin")
	},
	second: async (data) => {
		const route = { totp: "verify-totp", otp: "verify-otp", backup: "verify-backup-code" }[second]
		await enter(await post("/two-factor/" + route, { code: data.code.trim(), trustDevice: data.trustDevice === "on" }))
	},
	enable: async (data) => {
		const { totpURI, backupCodes } = await post("/two-factor/enable", data)
		pending = backupCodes
		one("#qr").replaceChildren(svg(totpURI))
		one("#secret").textContent = new URL(totpURI).searchParams.get("secret").match(/.{1,4}/g).join(" ")
		one('[data-form="enable"]').hidden = true
		one("#setup").hidden = false
		one('[data-form="confirm"] input').focus()
	},
	confirm: async (data) => {
		await post("/two-factor/verify-totp", data)
		showTwoStep(true)
		showBackup(pending)
		await listDevices()
	},
	disable: async (data, button) => {
		if (button.value === "codes") return showBackup((await post("/two-factor/generate-backup-codes", data)).backupCodes)
		await post("/two-factor/disable", data)
		showTwoStep(false)
	},
}

// pending are the backup codes to show once the authenticator works.
let pending = []

const acts = {
	passkey: signInByPasskey,
	link: async () => {
		await post("/sign-in/magic-link", { email: address(), callbackURL: "/" })
		show("sent")
	},
	code: async () => {
		await post("/email-otp/send-verification-otp", { email: address(), type: "sign-in" })
		show("mailcode")
	},
	forgot: async () => {
		await post("/request-password-reset", { email: address(), redirectTo: "/" })
		show("sent")
	},
	backup: () => { second = "backup"; showSecond() },
	restart: () => show("signin"),
	signout: async () => { await post("/sign-out"); await refresh() },
	verify: async () => {
		await post("/send-verification-email", { email: user.email, callbackURL: "/" })
		notice("The link is on its way.")
	},
	addpasskey: addPasskey,
	copy: () => navigator.clipboard.writeText(Array.from(all("#codes li"), (item) => item.textContent).join("\n")),
	saved: () => { one("#backup").hidden = true },
}

for (const form of all("form[data-form]")) {
	form.addEventListener("submit", (event) => {
		event.preventDefault()
		notice("")
		const data = Object.fromEntries(new FormData(form))
		busy(event.submitter, async () => {
			await forms[form.dataset.form](data, event.submitter)
			form.reset()
		}, one(".error", form))
	})
}
for (const button of all("[data-act]")) button.addEventListener("click", () => {
	notice("")
	const error = button.closest(".stack") ? one("#signin-error") : undefined
	busy(button, () => acts[button.dataset.act](), error)
})
for (const button of all("[data-show]")) button.addEventListener("click", () => show(button.dataset.show))

// Browsers allow passkeys only on https and localhost.
if (!window.PublicKeyCredential?.parseRequestOptionsFromJSON)
	for (const button of all('[data-act="passkey"], [data-act="addpasskey"]')) button.hidden = true

// The pages that links in mails and other pages return to.

const query = new URLSearchParams(location.search)
history.replaceState(null, "", "/")
if (query.has("token")) {
	show("reset")
} else if (query.has("twoFactorRedirect")) {
	askSecond(["totp"])
} else {
	await refresh()
	if (query.has("error")) notice("That link is not good any more. Ask for another one.", true)
}
