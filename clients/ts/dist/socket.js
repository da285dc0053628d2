const code = { ended: 1000, restart: 1012, later: 1013, unauthenticated: 4001, notMember: 4003, superseded: 4010 };
// How long a server has for a sign of life, in milliseconds.
const patience = 5_000;
/** A WebSocket that comes back until it is stopped or the server ends it. */
export class Socket {
    client;
    path;
    onFrame;
    onState;
    ws;
    backoff = 250;
    stopped = false;
    waiting;
    silence;
    token;
    constructor(client, path, onFrame, onState) {
        this.client = client;
        this.path = path;
        this.onFrame = onFrame;
        this.onState = onState;
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
    // A page that nobody looked at, on a phone that slept, comes back at once.
    seen = () => { if (document.visibilityState === "visible")
        this.wake(); };
    cut = () => { if (!this.stopped && this.waiting === undefined)
        this.lost(); };
    async connect() {
        this.waiting = undefined;
        this.token = await this.client.credential.token();
        const ws = await this.client.open(this.path);
        if (this.stopped)
            return ws.close();
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
        this.heard();
    }
    // heard puts off the moment at which silence means that the line is dead.
    heard() {
        clearTimeout(this.silence);
        const { quietMs } = this.client;
        this.silence = setTimeout(() => {
            this.send({ type: "ping" });
            this.silence = setTimeout(() => this.lost(), Math.min(quietMs, patience));
        }, quietMs);
    }
    // lost gives a dead line up at once: its own end would come in minutes.
    lost() {
        this.detach();
        void this.closed(0, "", true);
    }
    detach() {
        const ws = this.ws;
        if (!ws)
            return;
        ws.onopen = ws.onmessage = ws.onclose = null;
        ws.close();
    }
    async closed(reason, text, opened) {
        clearTimeout(this.silence);
        if (this.stopped)
            return;
        if (reason === code.ended || reason === code.notMember || reason === code.superseded) {
            this.stop();
            this.onState("ended", reason);
            return;
        }
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
    // A page cannot see why a handshake was refused: the token may have ended.
    async again(doubtful) {
        if (doubtful && this.token !== undefined)
            await this.client.credential.renew(this.token);
        if (!this.stopped)
            await this.connect();
    }
}
