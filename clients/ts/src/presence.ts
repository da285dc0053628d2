import type { Client } from "./client.js"
import { Socket, type SocketState } from "./socket.js"

/** What the presence socket tells. It is a hint: lists say what is so. */
export type PresenceEvent =
  | { type: "match_found"; sessionId: string; gameKey: string }
  | { type: "invite"; inviteId: string; gameKey: string; from: string }
  | { type: "friend_request"; from: string }
  | { type: "friends_online"; online: string[]; offline: string[] }

/** The socket by which a user is online. */
export class Presence {
  private readonly socket: Socket

  constructor(client: Client, onEvent: (event: PresenceEvent) => void, onState: (state: SocketState) => void = () => {}) {
    this.socket = new Socket(client, "/matchmaking/presence", (frame) => onEvent(frame as unknown as PresenceEvent), onState)
  }

  stop(): void { this.socket.stop() }
}
