import { createClient } from "@kitbackend/client"

const kit = createClient({ baseUrl: document.querySelector("meta[name=api]").content })
const $ = (selector) => document.querySelector(selector)

// attempt shows a refusal.
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
  const session = await kit.get("/auth/get-session")
  $("#sign").hidden = Boolean(session)
  $("#notes").hidden = !session
  if (!session) return
  $("#who").textContent = session.user.email
}

$("#sign").addEventListener("submit", attempt(async (event) => {
  const { email, password } = Object.fromEntries(new FormData(event.target))
  const up = event.submitter?.name === "up"
  await kit.post(up ? "/auth/sign-up/email" : "/auth/sign-in/email", { email, password, ...(up && { name: email.split("@")[0] }) })
  await show()
}))

$("#write").addEventListener("submit", attempt(async (event) => {
  await kit.post("/vector/{index}/documents", { documents: [{ id: crypto.randomUUID(), text: new FormData(event.target).get("text") }] }, { path: { index: "notes" } })
  event.target.reset()
}))

$("#find").addEventListener("submit", attempt(async (event) => {
  const { items } = await kit.post("/vector/{index}/query", { text: new FormData(event.target).get("query"), include: ["text"] }, { path: { index: "notes" } })
  $("#found").replaceChildren(...items.map((match) => Object.assign(document.createElement("li"), { textContent: match.text })))
}))

$("#out").addEventListener("click", attempt(async () => {
  await kit.post("/auth/sign-out", {})
  await show()
}))

attempt(show)()
