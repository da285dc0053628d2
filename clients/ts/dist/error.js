/** Every failure of a call is one of these; decide by code. */
export class KitError extends Error {
    code;
    status;
    details;
    requestId;
    retryAfterMs;
    name = "KitError";
    constructor(
    /** "domain/reason" as in docs/errors.md, or "network" where no response came. */
    code, message, 
    /** The HTTP status, 0 where there was none. */
    status = 0, details, 
    /** Names the request in the log of the server. */
    requestId, 
    /** When to try again, in milliseconds. */
    retryAfterMs, cause) {
        super(message, cause === undefined ? undefined : { cause });
        this.code = code;
        this.status = status;
        this.details = details;
        this.requestId = requestId;
        this.retryAfterMs = retryAfterMs;
    }
    /** Whether the same call may succeed later. */
    get temporary() {
        return this.status === 0 || this.status === 429 || this.status === 503;
    }
    static network(cause) {
        return new KitError("network", "The server does not respond.", 0, undefined, undefined, undefined, cause);
    }
    static async of(response) {
        const body = (await response.json().catch(() => null));
        const error = body?.error ?? body;
        const after = Number(response.headers.get("Retry-After"));
        return new KitError(error?.code ?? "http/" + response.status, error?.message ?? (response.statusText || "The call was refused."), response.status, body?.error?.details, body?.error?.requestId ?? response.headers.get("X-Request-Id") ?? undefined, after > 0 ? after * 1000 : undefined);
    }
}
