import { createClient } from "/client/index.js"
import { forget, keep, left } from "./left.js"
import { placeholder } from "./blurhash.js"

const $ = (id) => document.getElementById(id)
const element = (tag, properties = {}, ...children) => {
  const e = Object.assign(document.createElement(tag), properties)
  e.append(...children)
  return e
}

let user = ""
let kit = null // as the user who signed in
let cursor = null

const bytes = (n) => {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (n < 1000 || unit === "GB") return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`
    n /= 1000
  }
}

const toast = (text) => {
  $("toast").textContent = text
  $("toast").hidden = false
  clearTimeout(toast.timer)
  toast.timer = setTimeout(() => { $("toast").hidden = true }, 4000)
}

const attempt = (f) => async (...args) => {
  try { await f(...args) } catch (e) { toast(e.message) }
}

// row shows an upload until its object is in the grid.
const row = (file, id) => {
  const title = element("b", { textContent: file.name, title: file.name })
  const note = element("small")
  const bar = element("progress", { max: 1, value: 0 })
  bar.setAttribute("aria-label", "Progress of " + file.name)
  const toggle = element("button", { type: "button", className: "toggle" })
  const cancel = element("button", { type: "button", className: "quiet cancel", textContent: "Cancel" })
  const at = element("div", { className: "upload" }, title, note, toggle, cancel, bar)
  const upload = kit.upload(file, { id, onBegun: (id) => keep({ id, user, file }), onProgress: () => draw() })
  let error = ""
  const draw = () => {
    const share = file.size ? upload.sent / file.size : 1
    bar.value = share
    at.className = "upload " + upload.state
    toggle.textContent = upload.state === "running" ? "Pause" : "Resume"
    const state = { running: "", paused: " · paused", failed: " · " + error, done: "" }[upload.state]
    note.textContent = `${Math.floor(share * 100)} % of ${bytes(file.size)}${state}`
  }
  const run = async () => {
    const replaced = developed.get(file.name)
    try {
      const going = upload.run()
      draw()
      if (!(await going)) return // paused
    } catch (failure) {
      if (failure.status === 404) await forget(upload.id)
      error = failure.message
      return draw()
    }
    await forget(upload.id)
    if (replaced) await remove(replaced).catch(() => {})
    at.remove()
    await refresh()
  }
  toggle.onclick = () => {
    if (upload.state !== "running") return run()
    upload.pause()
    draw()
  }
  cancel.onclick = async () => {
    await upload.cancel().catch(() => {})
    if (upload.id) await forget(upload.id)
    at.remove()
  }
  draw()
  $("uploads").append(at)
  return run
}

const add = (files) => {
  for (const file of files) row(file)()
}

// remove deletes an item of media.
const remove = (id) => kit.delete("/media/{id}", { path: { id } })

// picture represents an object: its placeholder, then its thumbnail.
const picture = (object, media) => {
  const link = element("a", { target: "_blank", rel: "noopener", href: "#", textContent: object.path.split(".").pop().slice(0, 5) })
  link.setAttribute("aria-label", "Open " + object.path)
  const thumb = media?.derivatives.find((d) => d.name === "thumb")
  if (thumb) {
    link.replaceChildren(placeholder(media.blurhash))
    const image = element("img", { src: thumb.url, alt: object.path })
    image.onload = () => link.replaceChildren(image)
  }
  link.onclick = attempt(async (e) => {
    e.preventDefault()
    const page = window.open("", "_blank")
    const { url } = await kit.get("/storage/{id}/url", { path: { id: object.id } })
    if (page) page.location = url
  })
  return link
}

// developed are the items of media by the paths of their objects.
const developed = new Map()

const pictures = (object) => /^(image\/(?!.*xml)|video\/)/.test(object.contentType)

// develop passes an uploaded object to media, once, and waits for the result.
const developing = new Map()
const develop = (object) => {
  if (!developing.has(object.id)) developing.set(object.id, look(object).finally(() => developing.delete(object.id)))
  return developing.get(object.id)
}

const look = async (object) => {
  const id = object.metadata.media ?? (await kit.post("/gallery/pictures", { id: object.id })).item?.id
  if (!id || id === "none") return null
  for (;;) {
    const { item } = await kit.get("/media/{id}", { path: { id } })
    if (item.status === "ready" || item.status === "failed") return item
    await new Promise((done) => setTimeout(done, 400))
  }
}

// alike shows which other pictures look similar.
const alike = async (media, note) => {
  const { matches } = await kit.post("/media/duplicates", { id: media.id })
  if (!matches.length) return
  note.textContent = (matches[0].exact ? "Same as " : "Looks like ") + matches.map((m) => m.item.filename).join(", ")
  note.title = note.textContent
  note.hidden = false
}

const item = (object) => {
  const share = element("button", { type: "button", className: "share", textContent: "Share", onclick: attempt(() => shareOf(object)) })
  let media = null
  const away = element("button", { type: "button", className: "remove", textContent: "Delete", onclick: attempt(async () => {
    if (media) await remove(media.id)
    await kit.delete("/storage/{id}", { path: { id: object.id } })
    await refresh()
  }) })
  const note = element("small", { className: "alike", hidden: true })
  let shown = picture(object)
  const figure = element("figure", { className: "item" }, shown,
    element("figcaption", {}, element("b", { textContent: object.path, title: object.path }), element("small", { textContent: bytes(object.size) }), note),
    element("div", { className: "row" }, share, away))
  figure.dataset.id = object.id
  if (pictures(object)) {
    develop(object).then(async (found) => {
      if (!found) return
      media = found
      developed.set(object.path, found.id)
      if (found.status !== "ready") return
      const fresh = picture(object, found)
      shown.replaceWith(fresh)
      shown = fresh
      await alike(found, note)
    }).catch(() => {}) // it remains without a thumbnail
  }
  return figure
}

const shareOf = async (object) => {
  const { share } = await kit.post("/storage/{id}/shares", {}, { path: { id: object.id } })
  $("sharedname").textContent = object.path
  $("link").value = share.url
  $("copy").onclick = attempt(async () => { await navigator.clipboard.writeText(share.url); toast("Copied.") })
  $("revoke").onclick = attempt(async () => {
    await kit.delete("/storage/shares/{token}", { path: { token: share.id } })
    $("shared").close()
    toast("The link does not work any more.")
  })
  $("shared").showModal()
  $("link").select()
}

const refresh = async (from) => {
  const page = await kit.get("/storage", { query: { limit: 60, cursor: from } })
  const items = page.items.map(item)
  if (from) $("grid").append(...items)
  else $("grid").replaceChildren(...items)
  cursor = page.nextCursor
  $("more").hidden = !cursor
  $("empty").hidden = Boolean($("grid").children.length)
}

const nobody = createClient({ credentials: { accessToken: "" } })

// enter signs in, and again when the token has expired.
const enter = async (as) => {
  const renew = () => nobody.get("/__kit/dev-login", { query: { user: as } })
  kit = createClient({ credentials: { ...(await renew()), renew } })
  user = as
  sessionStorage.setItem("user", as)
  $("name").textContent = as
  $("signin").hidden = true
  $("gallery").hidden = $("who").hidden = false
  for (const u of await left(as)) row(u.file, u.id)
  await refresh()
}

$("login").onsubmit = attempt(async (e) => { e.preventDefault(); await enter($("user").value) })
$("signout").onclick = () => { sessionStorage.removeItem("user"); location.reload() }
$("more").onclick = attempt(() => refresh(cursor))
$("files").onchange = () => { add([...$("files").files]); $("files").value = "" }
$("drop").onkeydown = (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); $("files").click() } }
for (const [name, over] of [["dragenter", true], ["dragover", true], ["dragleave", false], ["drop", false]]) {
  document.addEventListener(name, (e) => {
    if ($("gallery").hidden) return
    e.preventDefault()
    $("drop").classList.toggle("over", over)
    if (name === "drop") add([...e.dataTransfer.files])
  })
}

const known = sessionStorage.getItem("user")
if (known) attempt(enter)(known)
else $("signin").hidden = false
