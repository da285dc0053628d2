import { expand } from "./client.js";
import { KitError } from "./error.js";
import { Socket } from "./socket.js";
/**
 * A game session: its view is always the latest one received, and an action takes
 * effect once, however often the connection breaks before it is acknowledged.
 */
export class Session {
    id;
    events;
    view;
    /** How far the server's clock is ahead of this one, in milliseconds. */
    skew = 0;
    pending = new Map();
    socket;
    constructor(client, id, events) {
        this.id = id;
        this.events = events;
        const path = expand("/multiplayer/sessions/{id}", { id });
        this.socket = new Socket(client, path + "/socket", (f) => this.take(f), (state, code) => {
            if (state === "ended")
                this.giveUp();
            events.onState?.(state, code);
        }, path);
    }
    /**
     * Sends an action and resolves to the version after it. With expect, the action is
     * refused unless the session still has that version.
     */
    act(data, expect) {
        const action = { type: "action", id: crypto.randomUUID(), data, ...(expect !== undefined && { expect }) };
        return new Promise((resolve, reject) => {
            this.pending.set(action.id, { action, resolve, reject });
            if (this.socket.stopped)
                this.giveUp();
            else
                this.socket.send(action);
        });
    }
    stop() {
        this.socket.stop();
        this.giveUp();
    }
    giveUp() {
        for (const { reject } of this.pending.values())
            reject(new KitError("network", "The session is over."));
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
