// h creates an element: h("button.hot", { onclick }, "Play").
export function h(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".")
  const element = document.createElement(name || "div")
  element.className = classes.join(" ")
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue
    if (key.startsWith("on") || key in element && typeof value !== "string") element[key] = value
    else element.setAttribute(key, value === true ? "" : value)
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false))
  return element
}

export const $ = (id) => document.getElementById(id)

// keepFocus renders again and keeps the keyboard focus.
export function keepFocus(root, render) {
  const key = root.contains(document.activeElement) ? document.activeElement.dataset.key : null
  render()
  if (key) root.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true })
}

export function toast(text, kind = "error") {
  const box = $("toasts")
  const note = h(`p.${kind}`, { role: kind === "error" ? "alert" : "status" }, text)
  box.append(note)
  while (box.children.length > 3) box.firstChild.remove()
  setTimeout(() => note.remove(), 5000)
}
