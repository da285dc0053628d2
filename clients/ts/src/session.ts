import { expand, type Client, type Schema } from "./client.js"
import { KitError } from "./error.js"
import { Socket, type OnState } from "./socket.js"

/** A game as a player sees it. */
export type View = Schema<"MultiplayerView">

export interface SessionEvents {
  onView: (view: View) => void
  onState?: OnState
  /** The game is over; the connection is closed afterwards. */
  onEnd?: (end: { phase: string; result: View["result"] }) => void
  onError?: (error: KitError) => void
}

interface Operation { op: "add" | "remove" | "replace"; path: string; value?: unknown }

interface Waiting {
  action: { type: "action"; id: string; data: unknown; expect?: number }
  resolve: (version: number) => void
  reject: (error: KitError) => void
}

/**
 * A game session: its view is always the latest one received, and an action takes
 * effect once, however often the connection breaks before it is acknowledged.
 */
export class Session {
  view: View | undefined
  /** How far the server's clock is ahead of this one, in milliseconds. */
  skew = 0
  private readonly pending = new Map<string, Waiting>()
  private readonly socket: Socket
  private over = false
  private refusal: KitError | undefined

  constructor(private readonly client: Client, readonly id: string, private readonly events: SessionEvents) {
    const path = expand("/multiplayer/sessions/{id}", { id })
    this.socket = new Socket(client, path + "/socket", (f) => this.take(f), (state, code, refusal) => {
      this.refusal = refusal
      if (state === "ended") this.settleAll()
      events.onState?.(state, code, refusal)
    }, path)
  }

  /**
   * Sends an action and resolves to the version after it. With expect, the action is
   * refused unless the session still has that version. It rejects with the refusal of the
   * server, such as multiplayer/invalid_transition once the game is over, and with network
   * if the session was stopped first.
   */
  act(data: unknown, expect?: number): Promise<number> {
    const action = { type: "action" as const, id: crypto.randomUUID(), data, ...(expect !== undefined && { expect }) }
    return new Promise((resolve, reject) => {
      this.pending.set(action.id, { action, resolve, reject })
      if (this.over || this.socket.stopped) this.settleAll()
      else this.socket.send(action)
    })
  }

  stop(): void {
    this.socket.stop()
    this.settleAll()
  }

  // settleAll settles what a socket that has ended no longer will. Once the game is over, a
  // call returns whether an action counted before.
  private settleAll(): void {
    for (const { action, resolve, reject } of this.pending.values()) {
      if (!this.over) reject(this.refusal ?? new KitError("network", "The connection of the session has ended."))
      else this.client.call("POST", "/multiplayer/sessions/{id}/action", action.data, { path: { id: this.id }, idempotencyKey: action.id })
        .then((changed) => resolve((changed as { version: number }).version), reject)
    }
    this.pending.clear()
  }

  private take(frame: { type: string; [member: string]: any }): void {
    switch (frame.type) {
      case "hello":
        this.skew = frame.ts - Date.now()
        for (const { action } of this.pending.values()) this.socket.send(action)
        break
      case "view":
        this.show(frame.view as View)
        break
      case "patch":
        if (this.view?.version !== frame.from) this.socket.send({ type: "resume", version: this.view?.version ?? 0 })
        else this.show((frame.ops as Operation[]).reduce<any>(patched, structuredClone(this.view)))
        break
      case "ack":
        this.settle(frame.id)?.resolve(frame.version)
        break
      case "error":
        this.refused(frame)
        break
      case "closed":
        this.over = true
        this.settleAll()
        this.events.onEnd?.({ phase: frame.phase, result: frame.result })
    }
  }

  private refused(frame: { [member: string]: any }): void {
    const waiting = this.settle(frame.id)
    const error = new KitError(frame.code, frame.message, 0, frame.details, undefined, frame.retryAfterMs)
    if (!waiting) this.events.onError?.(error)
    else if (!frame.retryAfterMs) waiting.reject(error)
    else {
      this.pending.set(frame.id, waiting)
      setTimeout(() => this.socket.send(waiting.action), frame.retryAfterMs)
    }
  }

  private settle(id: string): Waiting | undefined {
    const waiting = this.pending.get(id)
    this.pending.delete(id)
    return waiting
  }

  private show(view: View): void {
    this.view = view
    this.events.onView(view)
  }
}

// patched applies one operation of RFC 6902.
function patched(document: any, { op, path, value }: Operation): any {
  if (path === "") return value
  const names = path.slice(1).split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"))
  const last = names.pop()!
  const parent = names.reduce((node, name) => node[name], document)
  if (!Array.isArray(parent)) {
    if (op === "remove") delete parent[last]
    else parent[last] = value
  } else if (op === "remove") parent.splice(Number(last), 1)
  else if (op === "add") parent.splice(Number(last), 0, value)
  else parent[Number(last)] = value
  return document
}
