import { Socket } from "./socket.js";
/** The socket that makes a user online while it is open. */
export class Presence {
    socket;
    constructor(client, onEvent, onState = () => { }) {
        this.socket = new Socket(client, "/matchmaking/presence", (frame) => onEvent(frame), onState);
    }
    stop() { this.socket.stop(); }
}
