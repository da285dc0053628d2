import { KitError } from "./error.js";
/** Authenticates calls. Concurrent renewals are coalesced: callers that wait share one. */
export class Credential {
    baseUrl;
    given;
    fetch;
    limit;
    renewing;
    heard;
    fresh;
    stale = new Set(); // CSRF tokens that were refused
    constructor(baseUrl, given, fetch, limit) {
        this.baseUrl = baseUrl;
        this.given = given;
        this.fetch = fetch;
        this.limit = limit;
    }
    /** The credentials mode of fetch, which decides about cookies. */
    get mode() {
        if (this.given !== "cookie")
            return "omit";
        return "include";
    }
    /** The access token, or undefined with cookies. */
    async token() {
        return this.given === "cookie" ? undefined : this.given.accessToken;
    }
    /** Adds the credential to a request and returns it. */
    async prove(headers, method) {
        const token = await this.token();
        if (token)
            headers.set("Authorization", "Bearer " + token);
        if (token && this.fresh)
            headers.set("X-Kit-Fresh", this.fresh);
        if (token !== undefined || method === "GET" || method === "HEAD")
            return token;
        const csrf = this.csrf();
        if (csrf)
            headers.set("X-CSRF-Token", csrf);
        return csrf;
    }
    // csrf reads the token from the cookie only on pages of the kit's host: on another
    // host a cookie of that name is not the kit's. There may be several, of an earlier
    // configuration or set by another host, so one that was refused is not sent again.
    csrf() {
        const { location } = globalThis;
        const own = location && new URL(this.baseUrl, location.href).hostname === location.hostname;
        return [...(own ? csrfTokens() : []), this.heard].find((token) => token !== undefined && !this.stale.has(token));
    }
    /**
     * Stores the CSRF token of a response, because a page of another host cannot read the
     * cookie, and the proof of a confirmation, without which an access token may not change
     * how its user signs in.
     */
    hear(response) {
        this.heard = response.headers.get("X-CSRF-Token") ?? this.heard;
        this.fresh = response.headers.get("X-Kit-Fresh") ?? this.fresh;
    }
    /**
     * Replaces a credential that was refused with a code; resolves to false if it cannot be
     * replaced. It rejects if that may be possible later.
     */
    async renew(code, refused) {
        if (this.given === "cookie")
            return code === "auth/csrf" && this.another(refused);
        if (code !== "auth/unauthenticated" && code !== "UNAUTHORIZED")
            return false;
        if (this.given.accessToken !== refused)
            return true; // another call has renewed it
        this.renewing ??= this.locked(() => this.rotate()).finally(() => { this.renewing = undefined; });
        return this.renewing;
    }
    // another gives up a CSRF token and reports whether there is one of another cookie, or of the
    // refusal.
    another(refused) {
        if (refused !== undefined)
            this.stale.add(refused);
        return this.csrf() !== undefined;
    }
    // locked lets one tab of a browser renew at a time, because all tabs share the cookie.
    locked(rotate) {
        const locks = globalThis.navigator?.locks;
        if (!locks || this.given === "cookie" || this.given.refreshToken !== undefined)
            return rotate();
        return locks.request("kit-renew " + this.baseUrl, rotate);
    }
    async rotate() {
        const kept = this.given;
        if (kept === "cookie")
            return false;
        const next = await (kept.renew?.() ?? this.exchange(kept.refreshToken)).catch((cause) => {
            throw cause instanceof KitError ? cause : KitError.network(cause);
        });
        if (!next)
            return false;
        kept.accessToken = next.accessToken;
        if (next.refreshToken !== undefined)
            kept.refreshToken = next.refreshToken;
        kept.onRenewed?.({ accessToken: kept.accessToken, ...(kept.refreshToken !== undefined && { refreshToken: kept.refreshToken }) });
        return true;
    }
    // exchange exchanges a refresh token, or that of the cookie, for new tokens; it
    // resolves to undefined if the refresh token is no longer valid.
    async exchange(refreshToken) {
        const headers = {};
        const csrf = this.csrf();
        if (csrf)
            headers["X-CSRF-Token"] = csrf;
        if (refreshToken !== undefined)
            headers["Content-Type"] = "application/json";
        const response = await this.fetch(this.baseUrl + "/auth/token/rotate", {
            method: "POST", headers, credentials: refreshToken === undefined ? "include" : "omit", signal: this.limit(),
            ...(refreshToken !== undefined && { body: JSON.stringify({ refreshToken }) }),
        });
        if (response.ok)
            return (await response.json());
        this.hear(response);
        const refusal = await KitError.of(response);
        if (refusal.code === "auth/csrf" && this.another(csrf))
            return this.exchange(refreshToken);
        if (refusal.temporary || refusal.status >= 500)
            throw refusal; // the token may still be valid
        return undefined;
    }
}
// csrfTokens reads the tokens from their cookies, whose prefix depends on https.
function csrfTokens() {
    const pairs = globalThis.document?.cookie.split("; ") ?? [];
    return pairs.flatMap((pair) => /^(?:__Host-|__Secure-)?kit_csrf=([\w-]+)$/.exec(pair)?.[1] ?? []);
}
