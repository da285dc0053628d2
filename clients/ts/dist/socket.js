import { KitError } from "./error.js";
const code = { ended: 1000, failed: 1006, restart: 1012, later: 1013, unauthenticated: 4001, notMember: 4003, superseded: 4010 };
// The refusals of a handshake that are final, with the code that an open connection is
// closed with for the same reason.
const final = {
    "auth/unauthenticated": code.unauthenticated,
    "multiplayer/session_not_found": code.notMember,
    "multiplayer/not_a_member": code.notMember,
};
// How long to wait for a response of the server, in milliseconds.
const patience = 5_000;
/** A WebSocket that reconnects until it is stopped or the server ends it. */
export class Socket {
    client;
    path;
    onFrame;
    onState;
    plain;
    ws;
    backoff = 250;
    /** Whether it has ended and does not reconnect. */
    stopped = false;
    attempt = 0; // only the latest may open a connection
    waiting;
    silence;
    constructor(client, path, onFrame, onState, 
    /** A path that is refused to the same callers as the socket, for the reason. */
    plain = path) {
        this.client = client;
        this.path = path;
        this.onFrame = onFrame;
        this.onState = onState;
        this.plain = plain;
        if (!client.WebSocket)
            throw new TypeError("there is no WebSocket: pass one as the option webSocket");
        globalThis.addEventListener?.("online", this.wake);
        globalThis.addEventListener?.("offline", this.cut);
        globalThis.document?.addEventListener("visibilitychange", this.seen);
        void this.connect();
    }
    send(frame) {
        if (this.ws?.readyState === 1)
            this.ws.send(JSON.stringify(frame));
    }
    stop() {
        this.stopped = true;
        clearTimeout(this.waiting);
        clearTimeout(this.silence);
        globalThis.removeEventListener?.("online", this.wake);
        globalThis.removeEventListener?.("offline", this.cut);
        globalThis.document?.removeEventListener("visibilitychange", this.seen);
        this.detach();
    }
    wake = () => {
        if (this.waiting === undefined)
            return;
        clearTimeout(this.waiting);
        void this.connect();
    };
    // A page that becomes visible again reconnects at once.
    seen = () => { if (document.visibilityState === "visible")
        this.wake(); };
    cut = () => { if (!this.stopped && this.waiting === undefined)
        this.lost(); };
    async connect() {
        this.waiting = undefined;
        const attempt = ++this.attempt;
        const ws = await this.client.open(this.path).catch(() => undefined); // a policy of the page forbids it
        if (this.stopped || attempt !== this.attempt)
            return ws?.close();
        if (!ws)
            return this.lost(code.failed, false);
        this.ws = ws;
        let opened = false;
        ws.onopen = () => { opened = true; this.backoff = 250; this.heard(); this.onState("open"); };
        ws.onmessage = ({ data }) => {
            this.heard();
            const frame = JSON.parse(String(data));
            if (frame.type === "ping")
                this.send({ type: "pong" });
            else if (frame.type !== "pong")
                this.onFrame(frame);
        };
        ws.onclose = (event) => void this.closed(event.code, event.reason, opened);
        // Node 22 reports a handshake that fails by an error alone.
        ws.onerror = () => { if (!opened)
            this.lost(code.failed, opened); };
        this.heard();
    }
    // heard restarts the timer after which a silent connection is checked and given up.
    heard() {
        clearTimeout(this.silence);
        const { quietMs } = this.client;
        this.silence = setTimeout(() => {
            this.send({ type: "ping" });
            this.silence = setTimeout(() => this.lost(), Math.min(quietMs, patience));
        }, quietMs);
    }
    // lost gives up a dead connection at once; its close event would take minutes.
    lost(reason = 0, opened = true) {
        this.detach();
        void this.closed(reason, "", opened);
    }
    detach() {
        const ws = this.ws;
        if (!ws)
            return;
        ws.onopen = ws.onmessage = ws.onclose = ws.onerror = null;
        ws.close();
    }
    async closed(reason, text, opened) {
        clearTimeout(this.silence);
        if (this.stopped)
            return;
        if (reason === code.ended || reason === code.superseded)
            return this.end(reason);
        if (reason === code.notMember)
            return this.end(reason, new KitError(text, "You are no longer in this session.", 403));
        this.onState("lost", reason);
        let wait = this.backoff * (0.5 + Math.random());
        this.backoff = Math.min(this.backoff * 2, 15_000);
        if (reason === code.restart || reason === code.later) {
            try {
                wait = JSON.parse(text).retryAfterMs;
            }
            catch { /* the reason is optional */ }
        }
        this.waiting = setTimeout(() => void this.again(reason === code.unauthenticated || !opened), wait);
    }
    end(reason, refusal) {
        this.stop();
        this.onState("ended", reason, refusal);
    }
    // A page cannot see why a handshake was refused. A call can, and it renews an expired
    // token.
    async again(doubtful) {
        const { attempt } = this;
        let refusal;
        if (doubtful) {
            const signal = AbortSignal.timeout(patience);
            refusal = await this.client.call("GET", this.plain, undefined, { signal }).catch((cause) => cause);
        }
        if (this.stopped || attempt !== this.attempt)
            return;
        const reason = refusal instanceof KitError ? final[refusal.code] : undefined;
        if (reason !== undefined)
            return this.end(reason, refusal);
        await this.connect();
    }
}
