import { Socket } from "./socket.js";
/** The socket by which a user is online. */
export class Presence {
    socket;
    constructor(client, onEvent, onState = () => { }) {
        this.socket = new Socket(client, "/matchmaking/presence", (frame) => onEvent(frame), onState);
    }
    stop() { this.socket.stop(); }
}
