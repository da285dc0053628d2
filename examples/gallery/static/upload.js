// An upload that can be paused, left and taken up again. What is stored is asked
// of the server each time, so nothing has to be remembered but the file and the
// object's id: IndexedDB keeps both across a reload.
import { call } from "./net.js"

const atOnce = 3

const database = new Promise((resolve, reject) => {
  const open = indexedDB.open("gallery", 1)
  open.onupgradeneeded = () => open.result.createObjectStore("uploads", { keyPath: "id" })
  open.onsuccess = () => resolve(open.result)
  open.onerror = () => reject(open.error)
})

const store = async (mode, act) => {
  const transaction = (await database).transaction("uploads", mode)
  const request = act(transaction.objectStore("uploads"))
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(request.result)
    transaction.onerror = transaction.onabort = () => reject(transaction.error)
  })
}

// left lists the uploads of a user that an earlier page began.
export const left = async (user) => (await store("readonly", (s) => s.getAll())).filter((u) => u.user === user)

export class Upload {
  constructor(user, file, id, changed) {
    Object.assign(this, { user, file, id, changed, state: "paused", sent: 0, running: new Map() })
  }

  // run sends what is missing and returns the object, or null when it was paused.
  async run() {
    this.state = "running"
    this.error = ""
    try {
      if (!this.id) await this.begin()
      for (;;) {
        const missing = await this.missing()
        if (this.state !== "running") return null
        if (!missing.length) break
        await this.send(missing)
        if (this.state !== "running") return null
      }
      const object = await call("POST", `/storage/${this.id}/complete`)
      await this.forget()
      this.state = "done"
      return object
    } catch (e) {
      if (this.state !== "running") return null
      if (e.status === 404) await this.forget()
      this.state = "failed"
      this.error = e.message
      return null
    } finally {
      this.changed(this)
    }
  }

  async begin() {
    const { object } = await call("POST", "/storage", { path: this.file.name, size: this.file.size, contentType: this.file.type })
    this.id = object.id
    await store("readwrite", (s) => s.put({ id: this.id, user: this.user, file: this.file }))
  }

  // missing asks what is stored already, with fresh addresses for the rest.
  async missing() {
    let missing = [], cursor = ""
    this.sent = 0
    do {
      const page = await call("GET", `/storage/${this.id}/parts?cursor=${cursor}`)
      missing.push(...page.missing)
      for (const part of page.stored) this.sent += part.size
      this.partSize = page.partSize
      cursor = page.nextCursor
    } while (cursor)
    this.changed(this)
    return missing
  }

  async send(parts) {
    const next = async () => {
      for (let part; this.state === "running" && (part = parts.shift());) await this.put(part)
    }
    await Promise.all(Array.from({ length: atOnce }, next))
  }

  put(part) {
    const from = (part.partNumber - 1) * this.partSize
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest()
      this.running.set(request, 0)
      request.open("PUT", part.url)
      for (const [name, value] of Object.entries(part.headers ?? {})) request.setRequestHeader(name, value)
      if (!part.headers?.["Content-Type"]) request.setRequestHeader("Content-Type", "application/octet-stream")
      request.upload.onprogress = (e) => { this.running.set(request, e.loaded); this.changed(this) }
      request.onloadend = () => {
        this.running.delete(request)
        if (request.status === 200 || request.status === 412) { // 412: it was stored, the response got lost
          this.sent += part.size
          this.changed(this)
          resolve()
        } else if (this.state !== "running") {
          resolve()
        } else {
          reject(new Error(request.status ? `The store refused a part (${request.status}).` : "The connection broke."))
        }
      }
      request.send(this.file.slice(from, from + part.size))
    })
  }

  get progress() {
    let bytes = this.sent
    for (const loaded of this.running.values()) bytes += loaded
    return this.file.size ? Math.min(1, bytes / this.file.size) : 1
  }

  pause() {
    this.state = "paused"
    for (const request of this.running.keys()) request.abort()
    this.changed(this)
  }

  async cancel() {
    this.pause()
    if (this.id) {
      await call("POST", `/storage/${this.id}/abort`).catch(() => {})
      await this.forget()
    }
  }

  forget() { return store("readwrite", (s) => s.delete(this.id)) }
}
