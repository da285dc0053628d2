// Notes with a search as you type.
import { createClient } from "/client/index.js"

const $ = (id) => document.getElementById(id)
const colours = ["amber", "blue", "green", "rose"]
const index = { index: "notes" }
let kit = null // as the user who signed in
let colour = null // of the search; null means any
let asked = 0 // searches so far: the response to an old one is not shown

function h(tag, props = {}, ...children) {
  const element = Object.assign(document.createElement(tag), props)
  element.append(...children)
  return element
}

// enterAs creates a client for a user, and signs in again when the token has expired.
const nobody = createClient({ credentials: { accessToken: "" } })
async function enterAs(user) {
  const renew = () => nobody.get("/__kit/dev-login", { query: { user } })
  kit = createClient({ credentials: { ...(await renew()), renew } })
}

const attempt = (work) => async (...args) => {
  try {
    $("problem").textContent = ""
    return await work(...args)
  } catch (refusal) {
    $("problem").textContent = refusal.message ?? String(refusal)
  }
}

async function enter(name) {
  await enterAs(name)
  history.replaceState(null, "", "#" + name)
  $("name").textContent = name
  $("who").hidden = $("board").hidden = false
  $("login").hidden = true
  await kit.post("/notes/welcome")
  await search()
  $("query").focus()
}

const search = attempt(async () => {
  const mine = ++asked
  const text = $("query").value.trim()
  const result = text ? await find(text) : await all()
  if (mine !== asked) return
  $("notes").replaceChildren(...result.items.map((note) => card(note, text)))
  $("status").textContent = (text ? `${result.items.length} found` : `${result.items.length} notes`) +
    (result.nextCursor ? ", and more" : "")
  $("notes").dataset.query = text
})

// find searches for the nearest notes. A note that shares no word with the query and is at
// almost the maximum distance is only nearest because there is no other.
async function find(text) {
  const mode = document.querySelector("[name=mode]:checked").value
  const filter = colour ? { colour } : undefined
  // The last word may be incomplete, so a space after it is kept.
  const query = { text: $("query").value.trimStart(), mode, filter, topK: 8, include: ["text", "metadata"] }
  const result = await kit.post("/vector/{index}/query", query, { path: index })
  const near = (note) => note.distance === null || note.distance < 0.9 || marked(note.text, text).some((part) => typeof part !== "string")
  return { ...result, items: result.items.filter(near) }
}

async function all() {
  const result = await kit.get("/notes/all", { query: { limit: 200 } })
  if (colour) result.items = result.items.filter((note) => note.metadata.colour === colour)
  return result
}

function card(note, query) {
  const item = h("li", { className: note.metadata?.colour ?? "" })
  item.dataset.id = note.id
  item.append(h("p", {}, ...marked(note.text ?? "", query)))
  const remove = h("button", { className: "plain", type: "button", textContent: "Delete", onclick: attempt(async () => {
    await kit.delete("/vector/{index}/documents/{id}", { path: { ...index, id: note.id } })
    await search()
  }) })
  remove.setAttribute("aria-label", "Delete: " + (note.text ?? "").slice(0, 40))
  item.append(remove)
  return item
}

// marked returns a text with the beginnings of the words of the query marked.
function marked(text, query) {
  const words = new Set(query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])
  if (words.size === 0) return [text]
  return text.split(/([\p{L}\p{N}]+)/u).map((part) =>
    [...words].some((word) => word.length > 1 && part.toLowerCase().startsWith(word)) ? h("mark", { textContent: part }) : part)
}

for (const name of colours) {
  const paint = h("button", { type: "button", className: "paint " + name, title: name, onclick: () => {
    colour = colour === name ? null : name
    for (const other of $("colours").children) other.setAttribute("aria-pressed", String(other.title === colour))
    search()
  } })
  paint.setAttribute("aria-pressed", "false")
  paint.setAttribute("aria-label", "Only " + name)
  $("colours").append(paint)
  const input = h("input", { type: "radio", name: "paint", value: name, checked: name === colours[0] })
  input.setAttribute("aria-label", name)
  $("paints").append(h("label", { className: "paint " + name, title: name }, input))
}

$("login").onsubmit = attempt(async (event) => { event.preventDefault(); await enter($("player").value.trim()) })
$("signout").onclick = () => { location.hash = ""; location.reload() }
$("search").onsubmit = (event) => { event.preventDefault(); search() }
$("query").oninput = () => search()
$("modes").onchange = () => search()
$("write").onsubmit = attempt(async (event) => {
  event.preventDefault()
  const text = $("text").value.trim()
  if (!text) return
  const paint = document.querySelector("[name=paint]:checked").value
  await kit.post("/vector/{index}/documents", { text, metadata: { colour: paint } }, { path: index })
  $("text").value = ""
  await search()
})

if (location.hash.length > 1) attempt(enter)(decodeURIComponent(location.hash.slice(1)))
else $("player").focus()
