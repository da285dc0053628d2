import { Credential } from "./credential.js";
import { KitError } from "./error.js";
import { Presence } from "./presence.js";
import { Session } from "./session.js";
import { Upload } from "./upload.js";
// The longest wait before a repetition, in milliseconds; a call that would have to wait
// longer fails instead.
const longest = 10_000;
/** A typed client of one kit as one user. */
export class Client {
    baseUrl;
    credential;
    fetch;
    WebSocket;
    quietMs;
    retries;
    timeoutMs;
    constructor(options = {}) {
        this.baseUrl = (options.baseUrl ?? globalThis.location?.origin ?? "").replace(/\/+$/, "");
        this.fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
        this.WebSocket = options.webSocket ?? globalThis.WebSocket;
        this.quietMs = options.quietMs ?? 20_000;
        this.retries = options.retries ?? 2;
        this.timeoutMs = options.timeoutMs;
        this.credential = new Credential(this.baseUrl, options.credentials ?? "cookie", this.fetch, () => this.limit(undefined));
    }
    get(path, ...[options]) {
        return this.call("GET", path, undefined, options);
    }
    post(path, ...[body, options]) {
        return this.call("POST", path, body, options);
    }
    put(path, ...[body, options]) {
        return this.call("PUT", path, body, options);
    }
    patch(path, ...[body, options]) {
        return this.call("PATCH", path, body, options);
    }
    delete(path, ...[options]) {
        return this.call("DELETE", path, undefined, options);
    }
    /** Reads a list to its end, page by page. */
    async *list(path, ...[options]) {
        const given = (options ?? {});
        for (let cursor;;) {
            const query = cursor === undefined ? given.query : { ...given.query, cursor };
            const page = (await this.call("GET", path, undefined, { ...given, query }));
            yield* page.items;
            if (page.nextCursor === null)
                return;
            cursor = page.nextCursor;
        }
    }
    /** Follows a game session; it reconnects by itself. */
    session(id, events) {
        return new Session(this, id, events);
    }
    /** Listens to matches, invites and friends. */
    presence(onEvent, onState) {
        return new Presence(this, onEvent, onState);
    }
    /** Uploads a file, in parts if it is large; options.id resumes an upload. */
    upload(file, options = {}) {
        return new Upload(this, file, options);
    }
    /** Calls a path given by its template, without types. */
    async call(method, template, body, options = {}) {
        const url = this.baseUrl + expand(template, options.path) + search(options.query);
        const key = options.idempotencyKey === true ? crypto.randomUUID() : options.idempotencyKey;
        const repeatable = method === "GET" || key !== undefined;
        let renewed = false;
        for (let attempt = 0;; attempt++) {
            const headers = new Headers(options.headers);
            if (body !== undefined)
                headers.set("Content-Type", "application/json");
            if (key !== undefined)
                headers.set("Idempotency-Key", key);
            let failure;
            const proof = await this.credential.prove(headers, method);
            try {
                const response = await this.fetch(url, {
                    method, headers, credentials: this.credential.mode,
                    ...(body !== undefined && { body: JSON.stringify(body) }),
                    signal: this.limit(options.signal),
                });
                this.credential.hear(response);
                if (response.ok)
                    return await content(response);
                failure = await KitError.of(response);
            }
            catch (cause) {
                if (options.signal?.aborted)
                    throw cause;
                failure = cause instanceof KitError ? cause : KitError.network(cause);
            }
            if (!renewed && ["auth/unauthenticated", "UNAUTHORIZED", "auth/csrf"].includes(failure.code)) {
                try {
                    renewed = await this.credential.renew(failure.code, proof);
                    if (renewed)
                        continue;
                }
                catch (cause) {
                    failure = cause;
                }
            }
            const wait = failure.retryAfterMs ?? 200 * 2 ** attempt * (0.5 + Math.random());
            if (!repeatable || !failure.temporary || attempt >= this.retries || wait > longest)
                throw failure;
            await pause(wait, options.signal);
        }
    }
    // limit returns the signal that ends one attempt of a call.
    limit(given) {
        if (this.timeoutMs === undefined)
            return given ?? null;
        const late = AbortSignal.timeout(this.timeoutMs);
        return given ? AbortSignal.any([given, late]) : late;
    }
    /** Opens a socket of the kit; the access token, if any, is sent as a subprotocol. */
    async open(path) {
        const token = await this.credential.token();
        return new this.WebSocket(this.baseUrl.replace(/^http/, "ws") + path, token ? ["kit.v1", "kit.bearer." + token] : ["kit.v1"]);
    }
}
export const createClient = (options = {}) => new Client(options);
async function content(response) {
    if (response.status === 204)
        return undefined;
    const type = response.headers.get("Content-Type") ?? "text/plain";
    if (type.startsWith("text/"))
        return response.text();
    if (!/^application\/([a-z.+-]+\+)?json\b/.test(type))
        return response.blob();
    const text = await response.text();
    return text === "" ? undefined : JSON.parse(text);
}
// expand fills in the parameters of a path.
export function expand(template, values = {}) {
    return template.replace(/\{([^}]+)\}/g, (_, name) => {
        const value = values[name];
        if (value === undefined || value === "")
            throw new TypeError(`${template} needs ${name}`);
        const parts = name === "rest" ? String(value).split("/") : [String(value)];
        if (parts.some((part) => part === "." || part === "..")) // these lead to another path, encoded or not
            throw new TypeError(`${template} takes no ${value} for ${name}`);
        return parts.map(encodeURIComponent).join("/");
    });
}
function search(query = {}) {
    const list = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
        if (value !== undefined && value !== null)
            list.set(name, String(value));
    const text = list.toString();
    return text && "?" + text;
}
export function pause(ms, signal) {
    return new Promise((resolve, reject) => {
        if (signal?.aborted)
            return reject(signal.reason);
        const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, ms);
        const stop = () => { clearTimeout(timer); reject(signal?.reason); };
        signal?.addEventListener("abort", stop, { once: true });
    });
}
