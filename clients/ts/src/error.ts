// The body of a refusal.
interface Refusal {
  error?: { code?: string; message?: string; requestId?: string; details?: unknown }
  code?: string
  message?: string
}

/** The error of a failed call; decide by code. */
export class KitError extends Error {
  override readonly name = "KitError"

  constructor(
    /** "domain/reason" as in docs/errors.md, or "network" if there was no response. */
    readonly code: string,
    message: string,
    /** The HTTP status, or 0 if there was no response. */
    readonly status: number = 0,
    readonly details?: unknown,
    /** The id of the request in the log of the server. */
    readonly requestId?: string,
    /** How long to wait before trying again, in milliseconds. */
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
