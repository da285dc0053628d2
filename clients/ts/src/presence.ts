import type { Client } from "./client.js"
import { Socket, type OnState } from "./socket.js"

/** An event of the presence socket. It is a hint: the lists are authoritative. */
export type PresenceEvent =
  | { type: "match_found"; sessionId: string; gameKey: string }
  | { type: "match_failed"; gameKey: string; code?: string }
  | { type: "invite"; inviteId: string; gameKey: string; from: string }
  | { type: "friend_request"; from: string }
  | { type: "friends_online"; online: string[]; offline: string[] }

/** The socket that makes a user online while it is open. */
export class Presence {
  private readonly socket: Socket

  constructor(client: Client, onEvent: (event: PresenceEvent) => void, onState: OnState = () => {}) {
    this.socket = new Socket(client, "/matchmaking/presence", (frame) => onEvent(frame as unknown as PresenceEvent), onState)
  }

  stop(): void { this.socket.stop() }
}
