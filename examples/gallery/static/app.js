import { call, signIn } from "./net.js"
import { Upload, left } from "./upload.js"

const $ = (id) => document.getElementById(id)
const element = (tag, properties = {}, ...children) => {
  const e = Object.assign(document.createElement(tag), properties)
  e.append(...children)
  return e
}

let user = ""
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
const row = (upload) => {
  const title = element("b", { textContent: upload.file.name, title: upload.file.name })
  const note = element("small")
  const bar = element("progress", { max: 1, value: 0 })
  bar.setAttribute("aria-label", "Progress of " + upload.file.name)
  const toggle = element("button", { type: "button", className: "toggle" })
  const cancel = element("button", { type: "button", className: "quiet cancel", textContent: "Cancel" })
  const at = element("div", { className: "upload" }, title, note, toggle, cancel, bar)
  const run = async () => {
    const object = await upload.run()
    if (!object) return
    at.remove()
    await refresh()
  }
  toggle.onclick = () => (upload.state === "running" ? upload.pause() : run())
  cancel.onclick = async () => { await upload.cancel(); at.remove() }
  upload.changed = () => {
    bar.value = upload.progress
    at.className = "upload " + upload.state
    toggle.textContent = upload.state === "running" ? "Pause" : "Resume"
    const state = { running: "", paused: " · paused", failed: " · " + upload.error, done: "" }[upload.state]
    note.textContent = `${Math.floor(upload.progress * 100)} % of ${bytes(upload.file.size)}${state}`
  }
  upload.changed()
  $("uploads").append(at)
  return run
}

const add = (files) => {
  for (const file of files) row(new Upload(user, file, null, () => {}))()
}

// picture is what stands for an object; a derivative would take its place here.
const picture = (object) => {
  const link = element("a", { target: "_blank", rel: "noopener", href: "#", textContent: object.path.split(".").pop().slice(0, 5) })
  link.setAttribute("aria-label", "Open " + object.path)
  const sign = () => call("GET", `/storage/${object.id}/url`)
  if (object.contentType.startsWith("image/") && !object.contentType.includes("xml")) {
    sign().then(({ url }) => {
      const image = element("img", { src: url, alt: object.path })
      image.onload = () => link.replaceChildren(image)
    }, () => {})
  }
  link.onclick = attempt(async (e) => {
    e.preventDefault()
    const page = window.open("", "_blank")
    const { url } = await sign()
    if (page) page.location = url
  })
  return link
}

const item = (object) => {
  const share = element("button", { type: "button", className: "share", textContent: "Share", onclick: attempt(() => shareOf(object)) })
  const remove = element("button", { type: "button", className: "remove", textContent: "Delete", onclick: attempt(async () => {
    await call("DELETE", `/storage/${object.id}`)
    await refresh()
  }) })
  const figure = element("figure", { className: "item" }, picture(object),
    element("figcaption", {}, element("b", { textContent: object.path, title: object.path }), element("small", { textContent: bytes(object.size) })),
    element("div", { className: "row" }, share, remove))
  figure.dataset.id = object.id
  return figure
}

const shareOf = async (object) => {
  const { share } = await call("POST", `/storage/${object.id}/shares`, {})
  $("sharedname").textContent = object.path
  $("link").value = share.url
  $("copy").onclick = attempt(async () => { await navigator.clipboard.writeText(share.url); toast("Copied.") })
  $("revoke").onclick = attempt(async () => {
    await call("DELETE", `/storage/shares/${share.id}`)
    $("shared").close()
    toast("The link does not work any more.")
  })
  $("shared").showModal()
  $("link").select()
}

const refresh = async (from = "") => {
  const page = await call("GET", `/storage?limit=60&cursor=${from}`)
  const items = page.items.map(item)
  if (from) $("grid").append(...items)
  else $("grid").replaceChildren(...items)
  cursor = page.nextCursor
  $("more").hidden = !cursor
  $("empty").hidden = Boolean($("grid").children.length)
}

const enter = async (as) => {
  await signIn(as)
  user = as
  sessionStorage.setItem("user", as)
  $("name").textContent = as
  $("signin").hidden = true
  $("gallery").hidden = $("who").hidden = false
  for (const u of await left(as)) row(new Upload(as, u.file, u.id, () => {}))
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
