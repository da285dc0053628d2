// What a refusal is on the wire.
interface Refusal {
  error?: { code?: string; message?: string; requestId?: string; details?: unknown }
  code?: string
  message?: string
}

/** Every failure of a call is one of these; decide by code. */
export class KitError extends Error {
  override readonly name = "KitError"

  constructor(
    /** "domain/reason" as in docs/errors.md, or "network" where no response came. */
    readonly code: string,
    message: string,
    /** The HTTP status, 0 where there was none. */
    readonly status: number = 0,
    readonly details?: unknown,
    /** Names the request in the log of the server. */
    readonly requestId?: string,
    /** When to try again, in milliseconds. */
    readonly retryAfterMs?: number,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause })
  }

  /** Whether the same call may succeed later. */
  get temporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status === 503
  }

  static network(cause: unknown): KitError {
    return new KitError("network", "The server does not respond.", 0, undefined, undefined, undefined, cause)
  }

  static async of(response: Response): Promise<KitError> {
    const body = (await response.json().catch(() => null)) as Refusal | null
    const error = body?.error ?? body
    const after = Number(response.headers.get("Retry-After"))
    return new KitError(
      error?.code ?? "http/" + response.status,
      error?.message ?? (response.statusText || "The call was refused."),
      response.status,
      body?.error?.details,
      body?.error?.requestId ?? response.headers.get("X-Request-Id") ?? undefined,
      after > 0 ? after * 1000 : undefined,
    )
  }
}
