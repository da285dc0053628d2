// Talking to the kit: requests, and sockets that come back.

export const me = { name: null, token: null }

// ask is fetch with an end: over a dead line a request would wait for minutes.
async function ask(path, init) {
  try {
    return await fetch(path, { ...init, credentials: "omit", signal: AbortSignal.timeout(10_000) })
  } catch {
    throw { code: "network", message: "The server does not respond." }
  }
}

export async function signIn(name) {
  const response = await ask("/__kit/dev-login?user=" + encodeURIComponent(name))
  const body = await response.json()
  if (!response.ok) throw body.error
  ;[me.name, me.token] = [body.userId, body.accessToken]
}

// api calls a route as the player of this tab. A token lasts some minutes.
export async function api(method, path, body, again = true) {
  const headers = { Authorization: "Bearer " + me.token }
  if (body !== undefined) headers["Content-Type"] = "application/json"
  const response = await ask(path, { method, headers, body: body && JSON.stringify(body) })
  if (response.status === 401 && again) {
    await signIn(me.name)
    return api(method, path, body, false)
  }
  const text = await response.text()
  const value = text ? JSON.parse(text) : null
  if (!response.ok) throw value?.error ?? { code: "network", message: "The server does not respond." }
  return value
}

const code = { unauthenticated: 4001, notMember: 4003, superseded: 4010, restart: 1012, later: 1013 }

// Channel is a WebSocket that reconnects until it is stopped.
export class Channel {
  backoff = 500
  quiet = 4_000 // silence after which the server is asked for a sign of life
  patience = 3_000 // for its response

  constructor(path, { onframe, onstate = () => {} }) {
    Object.assign(this, { path, onframe, onstate })
    this.wake = () => { if (document.visibilityState === "visible" && this.waiting) this.connect() }
    document.addEventListener("visibilitychange", this.wake)
    this.cut = () => { if (!this.stopped && !this.waiting) this.lost() }
    addEventListener("online", this.wake)
    addEventListener("offline", this.cut)
    this.connect()
  }

  connect() {
    clearTimeout(this.waiting)
    this.waiting = null
    const ws = (this.ws = new WebSocket(this.path.replace(/^\//, location.origin.replace(/^http/, "ws") + "/"), ["kit.v1", "kit.bearer." + me.token]))
    ws.onopen = () => { this.backoff = 500; this.heard(); this.onstate("open") }
    ws.onmessage = ({ data }) => {
      this.heard()
      const frame = JSON.parse(data)
      if (frame.type === "ping") this.send({ type: "pong" })
      this.onframe(frame)
    }
    ws.onclose = (event) => this.closed(event)
    clearTimeout(this.silence)
    this.silence = setTimeout(() => this.lost(), this.quiet + this.patience)
  }

  send(frame) {
    if (this.ws.readyState === WebSocket.OPEN) this.ws.send(JSON.stringify(frame))
  }

  // heard puts off the moment at which silence means that the line is dead.
  heard() {
    clearTimeout(this.silence)
    this.silence = setTimeout(() => {
      this.send({ type: "ping" })
      this.silence = setTimeout(() => this.lost(), this.patience)
    }, this.quiet)
  }

  // lost gives a dead line up at once: its own end would come in minutes.
  lost() {
    this.detach()
    this.closed({ code: 0, reason: "" })
  }

  detach() {
    const { ws } = this
    ws.onopen = ws.onmessage = ws.onclose = null
    ws.close()
  }

  async closed(event) {
    clearTimeout(this.silence)
    if (this.stopped) return
    if (event.code === 1000 || event.code === code.notMember || event.code === code.superseded) {
      this.stop()
      this.onstate("ended", event.code)
      return
    }
    this.onstate("lost")
    let wait = this.backoff * (0.5 + Math.random())
    this.backoff = Math.min(this.backoff * 2, 15_000)
    if (event.code === code.restart || event.code === code.later) {
      try { wait = JSON.parse(event.reason).retryAfterMs } catch { /* the reason is optional */ }
    }
    // A page cannot see why a handshake was refused: the token may have ended.
    this.waiting = setTimeout(async () => {
      if (event.code === code.unauthenticated || this.backoff > 2000) await signIn(me.name).catch(() => {})
      if (!this.stopped) this.connect()
    }, wait)
  }

  stop() {
    this.stopped = true
    clearTimeout(this.waiting)
    clearTimeout(this.silence)
    document.removeEventListener("visibilitychange", this.wake)
    removeEventListener("online", this.wake)
    removeEventListener("offline", this.cut)
    this.detach()
  }
}

// Session follows one game: its view is always the newest that arrived, and an
// action counts once, however often the line breaks before it is acknowledged.
export class Session {
  view = null
  skew = 0
  pending = new Map()

  constructor(id, { onview, onstate, onend, onerror, onpending = () => {} }) {
    Object.assign(this, { id, onview, onend, onerror, onpending })
    this.channel = new Channel(`/multiplayer/sessions/${id}/socket`, { onframe: (f) => this.take(f), onstate })
  }

  act(data) {
    const action = { type: "action", id: crypto.randomUUID(), data }
    return new Promise((resolve, reject) => {
      this.pending.set(action.id, { action, resolve, reject })
      this.onpending(this.pending.size)
      this.channel.send(action)
    })
  }

  take(frame) {
    switch (frame.type) {
      case "hello":
        this.skew = frame.ts - Date.now()
        for (const { action } of this.pending.values()) this.channel.send(action)
        break
      case "view":
        this.show(frame.view)
        break
      case "patch":
        if (this.view?.version !== frame.from) this.channel.send({ type: "resume", version: this.view?.version ?? 0 })
        else this.show(frame.ops.reduce(patched, structuredClone(this.view)))
        break
      case "ack":
        this.settle(frame.id)?.resolve(frame)
        break
      case "error": {
        const waiting = this.settle(frame.id)
        if (frame.retryAfterMs && waiting) {
          this.pending.set(frame.id, waiting)
          this.onpending(this.pending.size)
          setTimeout(() => this.channel.send(waiting.action), frame.retryAfterMs)
        } else if (waiting) waiting.reject(frame)
        else this.onerror(frame)
        break
      }
      case "closed":
        this.onend(frame)
    }
  }

  settle(id) {
    const waiting = this.pending.get(id)
    this.pending.delete(id)
    this.onpending(this.pending.size)
    return waiting
  }

  show(view) {
    this.view = view
    this.onview(view)
  }

  stop() { this.channel.stop() }
}

// patched applies one operation of RFC 6902.
export function patched(document, { op, path, value }) {
  if (path === "") return value
  const names = path.slice(1).split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"))
  const last = names.pop()
  const parent = names.reduce((node, name) => node[name], document)
  if (!Array.isArray(parent)) {
    if (op === "remove") delete parent[last]
    else parent[last] = value
  } else if (op === "remove") parent.splice(Number(last), 1)
  else if (op === "add") parent.splice(Number(last), 0, value)
  else parent[last] = value
  return document
}
