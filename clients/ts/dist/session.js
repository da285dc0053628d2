import { expand } from "./client.js";
import { KitError } from "./error.js";
import { Socket } from "./socket.js";
/**
 * A game session: its view is always the latest one received, and an action takes
 * effect once, however often the connection breaks before it is acknowledged.
 */
export class Session {
    client;
    id;
    events;
    view;
    /** How far the server's clock is ahead of this one, in milliseconds. */
    skew = 0;
    pending = new Map();
    socket;
    over = false;
    refusal;
    constructor(client, id, events) {
        this.client = client;
        this.id = id;
        this.events = events;
        const path = expand("/multiplayer/sessions/{id}", { id });
        this.socket = new Socket(client, path + "/socket", (f) => this.take(f), (state, code, refusal) => {
            this.refusal = refusal;
            if (state === "ended")
                this.settleAll();
            events.onState?.(state, code, refusal);
        }, path);
    }
    /**
     * Sends an action and resolves to the version after it. With expect, the action is
     * refused unless the session still has that version. It rejects with the refusal of the
     * server, such as multiplayer/invalid_transition once the game is over, and with network
     * if the session was stopped first.
     */
    act(data, expect) {
        const action = { type: "action", id: crypto.randomUUID(), data, ...(expect !== undefined && { expect }) };
        return new Promise((resolve, reject) => {
            this.pending.set(action.id, { action, resolve, reject });
            if (this.over || this.socket.stopped)
                this.settleAll();
            else
                this.socket.send(action);
        });
    }
    stop() {
        this.socket.stop();
        this.settleAll();
    }
    // settleAll settles what a socket that has ended no longer will. Once the game is over, a
    // call returns whether an action counted before.
    settleAll() {
        for (const { action, resolve, reject } of this.pending.values()) {
            if (!this.over)
                reject(this.refusal ?? new KitError("network", "The connection of the session has ended."));
            else
                this.client.call("POST", "/multiplayer/sessions/{id}/action", action.data, { path: { id: this.id }, idempotencyKey: action.id })
                    .then((changed) => resolve(changed.version), reject);
        }
        this.pending.clear();
    }
    take(frame) {
        switch (frame.type) {
            case "hello":
                this.skew = frame.ts - Date.now();
                for (const { action } of this.pending.values())
                    this.socket.send(action);
                break;
            case "view":
                this.show(frame.view);
                break;
            case "patch":
                if (this.view?.version !== frame.from)
                    this.socket.send({ type: "resume", version: this.view?.version ?? 0 });
                else
                    this.show(frame.ops.reduce(patched, structuredClone(this.view)));
                break;
            case "ack":
                this.settle(frame.id)?.resolve(frame.version);
                break;
            case "error":
                this.refused(frame);
                break;
            case "closed":
                this.over = true;
                this.settleAll();
                this.events.onEnd?.({ phase: frame.phase, result: frame.result });
        }
    }
    refused(frame) {
        const waiting = this.settle(frame.id);
        const error = new KitError(frame.code, frame.message, 0, frame.details, undefined, frame.retryAfterMs);
        if (!waiting)
            this.events.onError?.(error);
        else if (!frame.retryAfterMs)
            waiting.reject(error);
        else {
            this.pending.set(frame.id, waiting);
            setTimeout(() => this.socket.send(waiting.action), frame.retryAfterMs);
        }
    }
    settle(id) {
        const waiting = this.pending.get(id);
        this.pending.delete(id);
        return waiting;
    }
    show(view) {
        this.view = view;
        this.events.onView(view);
    }
}
// patched applies one operation of RFC 6902.
function patched(document, { op, path, value }) {
    if (path === "")
        return value;
    const names = path.slice(1).split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = names.pop();
    const parent = names.reduce((node, name) => node[name], document);
    if (!Array.isArray(parent)) {
        if (op === "remove")
            delete parent[last];
        else
            parent[last] = value;
    }
    else if (op === "remove")
        parent.splice(Number(last), 1);
    else if (op === "add")
        parent.splice(Number(last), 0, value);
    else
        parent[Number(last)] = value;
    return document;
}
