import { expand, type Client } from "./client.js"
import { KitError } from "./error.js"
import type { components } from "./schema.js"
import { Socket, type SocketState } from "./socket.js"

/** A game as a player sees it. */
export type View = components["schemas"]["MultiplayerView"]

export interface SessionEvents {
  onView: (view: View) => void
  onState?: (state: SocketState, code?: number) => void
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

  constructor(client: Client, readonly id: string, private readonly events: SessionEvents) {
    const path = expand("/multiplayer/sessions/{id}", { id })
    this.socket = new Socket(client, path + "/socket", (f) => this.take(f), (state, code) => {
      if (state === "ended") this.giveUp()
      events.onState?.(state, code)
    }, path)
  }

  /**
   * Sends an action and resolves to the version after it. With expect, the action is
   * refused unless the session still has that version.
   */
  act(data: unknown, expect?: number): Promise<number> {
    const action = { type: "action" as const, id: crypto.randomUUID(), data, ...(expect !== undefined && { expect }) }
    return new Promise((resolve, reject) => {
      this.pending.set(action.id, { action, resolve, reject })
      if (this.socket.stopped) this.giveUp()
      else this.socket.send(action)
    })
  }

  stop(): void {
    this.socket.stop()
    this.giveUp()
  }

  private giveUp(): void {
    for (const { reject } of this.pending.values()) reject(new KitError("network", "The session is over."))
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
