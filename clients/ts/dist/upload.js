import { pause } from "./client.js";
import { KitError } from "./error.js";
// over reports whether the URL of a part has expired: a large file may take longer than
// URLs are valid, and the server returns new ones.
const over = ({ code, status }) => code === "storage/part_refused" && (status === 401 || status === 403);
/**
 * An upload that continues after a broken connection, and can be paused, left and
 * resumed. The server is queried each time for what is stored, so only the id needs to be
 * kept.
 */
export class Upload {
    client;
    file;
    options;
    state = "paused";
    id;
    stored = 0;
    beginning;
    line = new AbortController();
    running = new Map();
    constructor(client, file, options) {
        this.client = client;
        this.file = file;
        this.options = options;
        this.id = options.id;
    }
    /** The number of bytes sent. */
    get sent() {
        let bytes = this.stored;
        for (const loaded of this.running.values())
            bytes += loaded;
        return Math.min(bytes, this.file.size);
    }
    /** Sends the missing parts; resolves to undefined if it is paused or run again. */
    async run() {
        this.line.abort(); // of an earlier run, which may not have noticed yet that it was paused
        const { signal } = (this.line = new AbortController());
        this.state = "running";
        try {
            this.id ??= await (this.beginning ??= this.begin().finally(() => { this.beginning = undefined; }));
            const object = await this.sendAll(signal);
            this.state = "done";
            return object;
        }
        catch (failure) {
            if (signal.aborted)
                return undefined;
            this.state = "failed";
            throw failure;
        }
    }
    pause() {
        if (this.state === "running")
            this.state = "paused";
        this.line.abort();
    }
    /** Aborts the upload and deletes what is stored of it. */
    async cancel() {
        this.pause();
        const id = this.id ?? (await this.beginning?.catch(() => undefined));
        if (id !== undefined)
            await this.client.call("POST", "/storage/{id}/abort", undefined, { path: { id } });
    }
    async begin() {
        const { path, contentType, visibility } = this.options;
        const started = await this.client.call("POST", "/storage", {
            path: path ?? this.file.name ?? "upload",
            size: this.file.size,
            contentType: contentType ?? (this.file.type || "application/octet-stream"),
            ...(visibility && { visibility }),
        });
        const { id } = started.object;
        await this.options.onBegun?.(id);
        return id;
    }
    async sendAll(signal) {
        for (let failures = 0;;) {
            const before = this.stored;
            try {
                const { missing, partSize } = await this.missing();
                signal.throwIfAborted();
                if (missing.length === 0)
                    return await this.complete();
                await this.sendParts(missing, partSize, signal);
            }
            catch (failure) {
                signal.throwIfAborted();
                if (!(failure instanceof KitError) || !failure.temporary && !over(failure))
                    throw failure;
                failures = this.stored > before ? 1 : failures + 1;
                if (failures >= (this.options.retries ?? 6))
                    throw failure;
                await pause(failure.retryAfterMs ?? 200 * 2 ** failures * (0.5 + Math.random()), signal);
            }
        }
    }
    // complete may be repeated: a complete object is returned again.
    async complete() {
        return (await this.client.call("POST", "/storage/{id}/complete", undefined, { path: { id: this.id } }));
    }
    // missing returns the parts that are not stored yet, with new URLs. An upload that was
    // completed, but whose response was lost, has no list of parts any more.
    async missing() {
        return this.list().catch((failure) => {
            if (failure instanceof KitError && failure.code === "storage/not_found")
                return { missing: [], partSize: 0 };
            throw failure;
        });
    }
    async list() {
        const missing = [];
        let stored = 0, partSize = 0;
        for (let cursor;;) {
            const page = (await this.client.call("GET", "/storage/{id}/parts", undefined, { path: { id: this.id }, query: { cursor } }));
            missing.push(...page.missing);
            for (const part of page.stored)
                stored += part.size;
            partSize = page.partSize;
            cursor = page.nextCursor;
            if (!cursor)
                break;
        }
        this.stored = stored;
        this.report();
        return { missing, partSize };
    }
    async sendParts(parts, partSize, signal) {
        const next = async () => {
            for (let part; !signal.aborted && (part = parts.shift());)
                await this.put(part, partSize, signal);
        };
        const lines = await Promise.allSettled(Array.from({ length: this.options.atOnce ?? 3 }, next));
        for (const line of lines)
            if (line.status === "rejected")
                throw line.reason;
    }
    async put(part, partSize, signal) {
        const from = (part.partNumber - 1) * partSize;
        const body = this.file.slice(from, from + part.size);
        const headers = { "Content-Type": "application/octet-stream", ...part.headers };
        try {
            const status = await this.transfer(part, headers, body, signal);
            if (status !== 200 && status !== 412) // 412: it is stored, the response was lost
                throw new KitError("storage/part_refused", `The store refused a part (${status}).`, status >= 500 ? 503 : status);
            this.stored += part.size;
        }
        finally {
            this.running.delete(part);
            this.report();
        }
    }
    // transfer sends the bytes, with progress if there is XMLHttpRequest.
    transfer(part, headers, body, signal) {
        this.running.set(part, 0);
        if (typeof XMLHttpRequest === "undefined")
            return this.client.fetch(part.url, { method: "PUT", headers, body, signal, credentials: "omit" })
                .then((response) => response.status, (cause) => { throw KitError.network(cause); });
        return new Promise((resolve, reject) => {
            const request = new XMLHttpRequest();
            const stop = () => request.abort();
            request.open("PUT", part.url);
            for (const [name, value] of Object.entries(headers))
                request.setRequestHeader(name, value);
            request.upload.onprogress = (e) => { this.running.set(part, e.loaded); this.report(); };
            request.onloadend = () => {
                signal.removeEventListener("abort", stop);
                if (request.status)
                    resolve(request.status);
                else
                    reject(KitError.network(new Error("the connection broke")));
            };
            signal.addEventListener("abort", stop, { once: true });
            request.send(body);
        });
    }
    report() { this.options.onProgress?.(this.sent, this.file.size); }
}
