import { Credential, type Credentials } from "./credential.js"
import { KitError } from "./error.js"
import { Presence, type PresenceEvent } from "./presence.js"
import type { components, paths } from "./schema.js"
import { Session, type SessionEvents } from "./session.js"
import type { OnState } from "./socket.js"
import { Upload, type UploadOptions } from "./upload.js"

export type { Credentials, Tokens } from "./credential.js"

/** A schema of the document; any if the application does not compose the capability that has it. */
export type Schema<Name extends string> = components["schemas"] extends { [N in Name]: infer S } ? S : any

type Method = "get" | "post" | "put" | "patch" | "delete"

/**
 * The paths of the document with a method. Another path does not compile: regenerate the
 * types from the application's document, or use Client.call.
 */
export type PathOf<M extends Method> = { [P in keyof paths]: paths[P][M] extends { responses: unknown } ? P : never }[keyof paths]

type Operation<M extends Method, P extends keyof paths> = NonNullable<paths[P][M]>
type Json<T> = T extends { content: { "application/json": infer B } } ? B : never
type Responses<O> = O extends { responses: infer R } ? R : never
type Success<R> = { [S in keyof R]: S extends 200 | 201 | 202 ? Json<R[S]> : S extends 204 ? void : never }[keyof R]

/** The result of a call; unknown if the document does not define it. */
export type Output<M extends Method, P extends keyof paths> =
  [Success<Responses<Operation<M, P>>>] extends [never] ? unknown : Success<Responses<Operation<M, P>>>

/** The body of a call. */
export type Body<M extends Method, P extends keyof paths> =
  Operation<M, P> extends { requestBody?: infer B } ? Json<NonNullable<B>> : never

type Parameters<O> = O extends { parameters: infer R } ? R : never
type Member<T, K extends string> = T extends { [N in K]?: infer V } ? NonNullable<V> : never

/** The query parameters of a call. */
export type Query<M extends Method, P extends keyof paths> = Member<Parameters<Operation<M, P>>, "query">

interface Common {
  headers?: Record<string, string>
  signal?: AbortSignal
}

type Needs<K extends string, V> = [V] extends [never] ? { [N in K]?: never } : { [N in K]: V }
type May<K extends string, V> = [V] extends [never] ? { [N in K]?: never } : { [N in K]?: V }

interface Keyed {
  /**
   * Sent as Idempotency-Key. true generates one, so that the client can repeat the call
   * after a lost response. Only for paths that have this header in the document.
   */
  idempotencyKey?: string | true
}

type MayKey<H> = [H] extends [never] ? { idempotencyKey?: never }
  : "Idempotency-Key" extends keyof H ? Keyed : { idempotencyKey?: never }

/** The other options of a call: path parameters are required if the path has them. */
export type Options<M extends Method, P extends keyof paths> = Common &
  MayKey<Member<Parameters<Operation<M, P>>, "header">> &
  Needs<"path", Member<Parameters<Operation<M, P>>, "path">> &
  May<"query", Query<M, P>>

// A path that is not in the document is inferred as all of them. It takes any arguments, so
// that the compiler reports the path and not their number.
type Unknown<P, All> = [All] extends [P] ? Several<All> : false
type Several<All, One = All> = true extends (One extends unknown ? ([All] extends [One] ? false : true) : never) ? true : false

type Arguments<M extends Method, P extends keyof paths, All = PathOf<M>> = Unknown<P, All> extends true ? unknown[]
  : Record<never, never> extends Options<M, P> ? [options?: Options<M, P>]
  : [options: Options<M, P>]

type BodyArguments<M extends Method, P extends keyof paths> = Unknown<P, PathOf<M>> extends true ? unknown[]
  : [Body<M, P>] extends [never]
  ? [body?: unknown, ...rest: Arguments<M, P>]
  : [body: Body<M, P>, ...rest: Arguments<M, P>]

/** The paths of lists. */
export type ListPath = { [P in PathOf<"get">]: Output<"get", P> extends { items: unknown[]; nextCursor: unknown } ? P : never }[PathOf<"get">]

/** One item of a list. */
export type Item<P extends ListPath> = Output<"get", P> extends { items: (infer T)[] } ? T : never

export interface ClientOptions {
  /** The base URL of the kit, such as "https://example.com/api"; by default the page's origin. */
  baseUrl?: string
  /**
   * How calls authenticate: "cookie", the default, for pages of the kit's own origin or of
   * a trusted one, or tokens that the client stores and renews.
   */
  credentials?: Credentials
  /** How often a repeatable call is repeated, by default 2. */
  retries?: number
  /** The timeout of each attempt of a call, in milliseconds; by default that of the platform. */
  timeoutMs?: number
  /**
   * After how long without a frame a socket sends a ping, in milliseconds, by default
   * 20000. If nothing arrives for the same time again, at most 5 seconds, the socket
   * reconnects.
   */
  quietMs?: number
  fetch?: typeof fetch
  webSocket?: typeof WebSocket
}

interface Untyped extends Common, Keyed {
  path?: Record<string, unknown> | undefined
  query?: Record<string, unknown> | undefined
}

// The longest wait before a repetition, in milliseconds; a call that would have to wait
// longer fails instead.
const longest = 10_000

/** A typed client of one kit as one user. */
export class Client {
  readonly baseUrl: string
  readonly credential: Credential
  readonly fetch: typeof fetch
  readonly WebSocket: typeof WebSocket
  readonly quietMs: number
  private readonly retries: number
  private readonly timeoutMs: number | undefined

  constructor(options: ClientOptions = {}) {
    this.baseUrl = (options.baseUrl ?? globalThis.location?.origin ?? "").replace(/\/+$/, "")
    this.fetch = options.fetch ?? ((...given) => globalThis.fetch(...given))
    this.WebSocket = options.webSocket ?? globalThis.WebSocket
    this.quietMs = options.quietMs ?? 20_000
    this.retries = options.retries ?? 2
    this.timeoutMs = options.timeoutMs
    this.credential = new Credential(this.baseUrl, options.credentials ?? "cookie", this.fetch, () => this.limit(undefined))
  }

  get<P extends PathOf<"get">>(path: P, ...[options]: Arguments<"get", P>): Promise<Output<"get", P>> {
    return this.call("GET", path, undefined, options as Untyped) as Promise<Output<"get", P>>
  }

  post<P extends PathOf<"post">>(path: P, ...[body, options]: BodyArguments<"post", P>): Promise<Output<"post", P>> {
    return this.call("POST", path, body, options as Untyped) as Promise<Output<"post", P>>
  }

  put<P extends PathOf<"put">>(path: P, ...[body, options]: BodyArguments<"put", P>): Promise<Output<"put", P>> {
    return this.call("PUT", path, body, options as Untyped) as Promise<Output<"put", P>>
  }

  patch<P extends PathOf<"patch">>(path: P, ...[body, options]: BodyArguments<"patch", P>): Promise<Output<"patch", P>> {
    return this.call("PATCH", path, body, options as Untyped) as Promise<Output<"patch", P>>
  }

  delete<P extends PathOf<"delete">>(path: P, ...[options]: Arguments<"delete", P>): Promise<Output<"delete", P>> {
    return this.call("DELETE", path, undefined, options as Untyped) as Promise<Output<"delete", P>>
  }

  /** Reads a list to its end, page by page. */
  async *list<P extends ListPath>(path: P, ...[options]: Arguments<"get", P, ListPath>): AsyncGenerator<Item<P>, void, undefined> {
    const given = (options ?? {}) as Untyped
    for (let cursor: string | undefined; ; ) {
      const query = cursor === undefined ? given.query : { ...given.query, cursor }
      const page = (await this.call("GET", path, undefined, { ...given, query })) as { items: Item<P>[]; nextCursor: string | null }
      yield* page.items
      if (page.nextCursor === null) return
      cursor = page.nextCursor
    }
  }

  /** Follows a game session; it reconnects by itself. */
  session(id: string, events: SessionEvents): Session {
    return new Session(this, id, events)
  }

  /** Listens to matches, invites and friends. */
  presence(onEvent: (event: PresenceEvent) => void, onState?: OnState): Presence {
    return new Presence(this, onEvent, onState)
  }

  /** Uploads a file, in parts if it is large; options.id resumes an upload. */
  upload(file: Blob, options: UploadOptions = {}): Upload {
    return new Upload(this, file, options)
  }

  /** Calls a path given by its template, without types. */
  async call(method: string, template: string, body?: unknown, options: Untyped = {}): Promise<unknown> {
    const url = this.baseUrl + expand(template, options.path) + search(options.query)
    const key = options.idempotencyKey === true ? crypto.randomUUID() : options.idempotencyKey
    const repeatable = method === "GET" || key !== undefined
    let renewed = false
    for (let attempt = 0; ; attempt++) {
      const headers = new Headers(options.headers)
      if (body !== undefined) headers.set("Content-Type", "application/json")
      if (key !== undefined) headers.set("Idempotency-Key", key)
      let failure: KitError
      const proof = await this.credential.prove(headers, method)
      try {
        const response = await this.fetch(url, {
          method, headers, credentials: this.credential.mode,
          ...(body !== undefined && { body: JSON.stringify(body) }),
          signal: this.limit(options.signal),
        })
        this.credential.hear(response)
        if (response.ok) return await content(response)
        failure = await KitError.of(response)
      } catch (cause) {
        if (options.signal?.aborted) throw cause
        failure = cause instanceof KitError ? cause : KitError.network(cause)
      }
      if (!renewed && ["auth/unauthenticated", "UNAUTHORIZED", "auth/csrf"].includes(failure.code)) {
        try {
          renewed = await this.credential.renew(failure.code, proof)
          if (renewed) continue
        } catch (cause) {
          failure = cause as KitError
        }
      }
      const wait = failure.retryAfterMs ?? 200 * 2 ** attempt * (0.5 + Math.random())
      if (!repeatable || !failure.temporary || attempt >= this.retries || wait > longest) throw failure
      await pause(wait, options.signal)
    }
  }

  // limit returns the signal that ends one attempt of a call.
  private limit(given: AbortSignal | undefined): AbortSignal | null {
    if (this.timeoutMs === undefined) return given ?? null
    const late = AbortSignal.timeout(this.timeoutMs)
    return given ? AbortSignal.any([given, late]) : late
  }

  /** Opens a socket of the kit; the access token, if any, is sent as a subprotocol. */
  async open(path: string): Promise<WebSocket> {
    const token = await this.credential.token()
    return new this.WebSocket(this.baseUrl.replace(/^http/, "ws") + path, token ? ["kit.v1", "kit.bearer." + token] : ["kit.v1"])
  }
}

export const createClient = (options: ClientOptions = {}): Client => new Client(options)

async function content(response: Response): Promise<unknown> {
  if (response.status === 204) return undefined
  const type = response.headers.get("Content-Type") ?? "text/plain"
  if (type.startsWith("text/")) return response.text()
  if (!/^application\/([a-z.+-]+\+)?json\b/.test(type)) return response.blob()
  const text = await response.text()
  return text === "" ? undefined : JSON.parse(text)
}

// expand fills in the parameters of a path.
export function expand(template: string, values: Record<string, unknown> = {}): string {
  return template.replace(/\{([^}]+)\}/g, (_, name: string) => {
    const value = values[name]
    if (value === undefined || value === "") throw new TypeError(`${template} needs ${name}`)
    const parts = name === "rest" ? String(value).split("/") : [String(value)]
    if (parts.some((part) => part === "." || part === "..")) // these lead to another path, encoded or not
      throw new TypeError(`${template} takes no ${value} for ${name}`)
    return parts.map(encodeURIComponent).join("/")
  })
}

function search(query: Record<string, unknown> = {}): string {
  const list = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null) list.set(name, String(value))
  const text = list.toString()
  return text && "?" + text
}

export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve() }, ms)
    const stop = () => { clearTimeout(timer); reject(signal?.reason) }
    signal?.addEventListener("abort", stop, { once: true })
  })
}

