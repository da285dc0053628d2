import { KitError } from "./error.js"

/** What a program keeps that holds the tokens itself. */
export interface Tokens {
  /** Empty where there is none yet: calls go out without proof until one is refused. */
  accessToken: string
  /** Left out where the refresh token is in a cookie, on pages of the kit's own host. */
  refreshToken?: string
}

/**
 * "cookie": the session's cookies prove. Tokens: the access token proves, and is
 * renewed by the refresh token, or by its cookie where there is none. With
 * renew the application gets new ones itself; undefined gives up.
 */
export type Credentials =
  | "cookie"
  | (Tokens & {
      /** Called with each new pair; keep it where the next start finds it. */
      onRenewed?: (tokens: Tokens) => void
      /** A rejection is that of the calls that wait, and the tokens stay. */
      renew?: () => Promise<Tokens | undefined>
    })

/** Proves who calls, and renews the proof once for all that wait for it. */
export class Credential {
  private renewing: Promise<boolean> | undefined
  private heard: string | undefined

  constructor(
    private readonly baseUrl: string,
    private readonly given: Credentials,
    private readonly fetch: typeof globalThis.fetch,
    private readonly limit: () => AbortSignal | null,
  ) {}

  /** What fetch does with cookies. */
  get mode(): RequestCredentials {
    if (this.given !== "cookie") return "omit"
    return "include"
  }

  /** The access token, undefined where cookies prove. */
  async token(): Promise<string | undefined> {
    return this.given === "cookie" ? undefined : this.given.accessToken
  }

  /** Puts the proof on a request and returns which one it was. */
  async prove(headers: Headers, method: string): Promise<string | undefined> {
    const token = await this.token()
    if (token) headers.set("Authorization", "Bearer " + token)
    if (token !== undefined || method === "GET" || method === "HEAD") return token
    const csrf = this.csrf()
    if (csrf) headers.set("X-CSRF-Token", csrf)
    return csrf
  }

  // csrf is the cookie's only where that is of the kit: the cookie of a page's own
  // host is nobody else's to see.
  private csrf(): string | undefined {
    const { location } = globalThis
    const own = location && new URL(this.baseUrl, location.href).hostname === location.hostname
    return (own ? csrfToken() : undefined) ?? this.heard
  }

  /** Keeps the CSRF token that responses carry: a page of another host cannot read the cookie. */
  hear(response: Response): void {
    this.heard = response.headers.get("X-CSRF-Token") ?? this.heard
  }

  /**
   * Replaces a proof that was refused with a code; false where there is nothing to
   * replace it with. It fails where that may be possible later.
   */
  async renew(code: string, refused: string | undefined): Promise<boolean> {
    if (this.given === "cookie") return code === "auth/csrf" && this.csrf() !== refused // the refusal told it
    if (code !== "auth/unauthenticated") return false
    if (this.given.accessToken !== refused) return true // somebody else did
    this.renewing ??= this.locked(() => this.rotate()).finally(() => { this.renewing = undefined })
    return this.renewing
  }

  // locked lets one tab of a browser renew at a time: the cookie is of all.
  private locked(rotate: () => Promise<boolean>): Promise<boolean> {
    const locks = globalThis.navigator?.locks
    if (!locks || this.given === "cookie" || this.given.refreshToken !== undefined) return rotate()
    return locks.request("kit-renew " + this.baseUrl, rotate) as unknown as Promise<boolean>
  }

  private async rotate(): Promise<boolean> {
    const kept = this.given
    if (kept === "cookie") return false
    const next = await (kept.renew?.() ?? this.exchange(kept.refreshToken)).catch((cause) => {
      throw cause instanceof KitError ? cause : KitError.network(cause)
    })
    if (!next) return false
    kept.accessToken = next.accessToken
    if (next.refreshToken !== undefined) kept.refreshToken = next.refreshToken
    kept.onRenewed?.({ accessToken: kept.accessToken, ...(kept.refreshToken !== undefined && { refreshToken: kept.refreshToken }) })
    return true
  }

  // exchange changes a refresh token, or that of the cookie, for new tokens;
  // undefined where it is good no more.
  private async exchange(refreshToken: string | undefined): Promise<Tokens | undefined> {
    const headers: Record<string, string> = {}
    const csrf = this.csrf()
    if (csrf) headers["X-CSRF-Token"] = csrf
    if (refreshToken !== undefined) headers["Content-Type"] = "application/json"
    const response = await this.fetch(this.baseUrl + "/auth/token/rotate", {
      method: "POST", headers, credentials: refreshToken === undefined ? "include" : "omit", signal: this.limit(),
      ...(refreshToken !== undefined && { body: JSON.stringify({ refreshToken }) }),
    })
    if (response.ok) return (await response.json()) as Tokens
    const refusal = await KitError.of(response)
    if (refusal.temporary || refusal.status >= 500) throw refusal // which says nothing about the token
    return undefined
  }
}

// csrfToken is in a cookie that the page may read; its prefix depends on https.
function csrfToken(): string | undefined {
  const all = globalThis.document?.cookie ?? ""
  for (const pair of all.split("; ")) {
    const at = pair.indexOf("=")
    if (/^(__Host-|__Secure-)?kit_csrf$/.test(pair.slice(0, at))) return decodeURIComponent(pair.slice(at + 1))
  }
  return undefined
}
