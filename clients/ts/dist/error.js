/** The error of a failed call; decide by code. */
export class KitError extends Error {
    code;
    status;
    details;
    requestId;
    retryAfterMs;
    name = "KitError";
    constructor(
    /** "domain/reason" as in docs/errors.md, or "network" if there was no response. */
    code, message, 
    /** The HTTP status, or 0 if there was no response. */
    status = 0, details, 
    /** The id of the request in the log of the server. */
    requestId, 
    /** How long to wait before trying again, in milliseconds. */
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
