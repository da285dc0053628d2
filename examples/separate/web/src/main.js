const api = document.querySelector("meta[name=api]").content
const $ = (selector) => document.querySelector(selector)

// token is the CSRF token of the session: the kit sends it with every response that
// a cookie has proved, and asks for it with every change.
let token = ""

// call returns the response's JSON, or throws the refusal.
async function call(method, path, body) {
  const response = await fetch(api + path, {
    method,
    credentials: "include",
    headers: { ...(body && { "Content-Type": "application/json" }), ...(token && { "X-CSRF-Token": token }) },
    body: body && JSON.stringify(body),
  })
  token = response.headers.get("X-CSRF-Token") ?? token
  const text = await response.text()
  const value = text ? JSON.parse(text) : null
  if (!response.ok) throw Object.assign(new Error(value?.error?.message ?? response.statusText), { code: value?.error?.code })
  return value
}

// attempt shows what is refused.
const attempt = (f) => async (event) => {
  event?.preventDefault()
  $("#trouble").textContent = ""
  try {
    await f(event)
  } catch (refused) {
    $("#trouble").textContent = refused.message
  }
}

async function show() {
  const session = await call("GET", "/auth/get-session")
  $("#sign").hidden = Boolean(session)
  $("#notes").hidden = !session
  if (!session) return
  $("#who").textContent = session.user.email
  await call("GET", "/auth/devices") // a row of the kit, whose response tells the token
}

$("#sign").addEventListener("submit", attempt(async (event) => {
  const { email, password } = Object.fromEntries(new FormData(event.target))
  const up = event.submitter?.name === "up"
  await call("POST", up ? "/auth/sign-up/email" : "/auth/sign-in/email", { email, password, ...(up && { name: email.split("@")[0] }) })
  await show()
}))

$("#write").addEventListener("submit", attempt(async (event) => {
  await call("POST", "/vector/notes/documents", { documents: [{ id: crypto.randomUUID(), text: new FormData(event.target).get("text") }] })
  event.target.reset()
}))

$("#find").addEventListener("submit", attempt(async (event) => {
  const { items } = await call("POST", "/vector/notes/query", { text: new FormData(event.target).get("query"), include: ["text"] })
  $("#found").replaceChildren(...items.map((match) => Object.assign(document.createElement("li"), { textContent: match.text })))
}))

$("#out").addEventListener("click", attempt(async () => {
  await call("POST", "/auth/sign-out", {})
  token = ""
  await show()
}))

attempt(show)()
