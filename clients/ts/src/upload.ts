import { pause, type Client, type Schema } from "./client.js"
import { KitError } from "./error.js"

type StoredObject = Schema<"StorageObject">
type Progress = Schema<"StorageProgress">
type Part = Progress["missing"][number]

export interface UploadOptions {
  /** The path of the object; by default the name of the file. */
  path?: string
  contentType?: string
  visibility?: "private" | "public"
  /** The id of an earlier upload of the same bytes, to resume it. */
  id?: string
  /** Called once with the id of a new upload; store it to resume the upload. */
  onBegun?: (id: string) => void | Promise<void>
  onProgress?: (sent: number, size: number) => void
  /** How many parts are sent at once, by default 3. */
  atOnce?: number
  /** How many consecutive failures end the upload, by default 6. */
  retries?: number
}

export type UploadState = "paused" | "running" | "done" | "failed"

// over reports whether the URL of a part has expired: a large file may take longer than
// URLs are valid, and the server returns new ones.
const over = ({ code, status }: KitError) => code === "storage/part_refused" && (status === 401 || status === 403)

/**
 * An upload that continues after a broken connection, and can be paused, left and
 * resumed. The server is queried each time for what is stored, so only the id needs to be
 * kept.
 */
export class Upload {
  state: UploadState = "paused"
  id: string | undefined
  private stored = 0
  private beginning: Promise<string> | undefined
  private line = new AbortController()
  private readonly running = new Map<object, number>()

  constructor(private readonly client: Client, private readonly file: Blob, private readonly options: UploadOptions) {
    this.id = options.id
  }

  /** The number of bytes sent. */
  get sent(): number {
    let bytes = this.stored
    for (const loaded of this.running.values()) bytes += loaded
    return Math.min(bytes, this.file.size)
  }

  /** Sends the missing parts; resolves to undefined if it is paused or run again. */
  async run(): Promise<StoredObject | undefined> {
    this.line.abort() // of an earlier run, which may not have noticed yet that it was paused
    const { signal } = (this.line = new AbortController())
    this.state = "running"
    try {
      this.id ??= await (this.beginning ??= this.begin().finally(() => { this.beginning = undefined }))
      const object = await this.sendAll(signal)
      this.state = "done"
      return object
    } catch (failure) {
      if (signal.aborted) return undefined
      this.state = "failed"
      throw failure
    }
  }

  pause(): void {
    if (this.state === "running") this.state = "paused"
    this.line.abort()
  }

  /** Aborts the upload and deletes what is stored of it. */
  async cancel(): Promise<void> {
    this.pause()
    const id = this.id ?? (await this.beginning?.catch(() => undefined))
    if (id !== undefined) await this.client.call("POST", "/storage/{id}/abort", undefined, { path: { id } })
  }

  private async begin(): Promise<string> {
    const { path, contentType, visibility } = this.options
    const started = await this.client.call("POST", "/storage", {
      path: path ?? (this.file as File).name ?? "upload",
      size: this.file.size,
      contentType: contentType ?? (this.file.type || "application/octet-stream"),
      ...(visibility && { visibility }),
    })
    const { id } = (started as { object: StoredObject }).object
    await this.options.onBegun?.(id)
    return id
  }

  private async sendAll(signal: AbortSignal): Promise<StoredObject> {
    for (let failures = 0; ; ) {
      const before = this.stored
      try {
        const { missing, partSize } = await this.missing()
        signal.throwIfAborted()
        if (missing.length === 0) return await this.complete()
        await this.sendParts(missing, partSize, signal)
      } catch (failure) {
        signal.throwIfAborted()
        if (!(failure instanceof KitError) || !failure.temporary && !over(failure)) throw failure
        failures = this.stored > before ? 1 : failures + 1
        if (failures >= (this.options.retries ?? 6)) throw failure
        await pause(failure.retryAfterMs ?? 200 * 2 ** failures * (0.5 + Math.random()), signal)
      }
    }
  }

  // complete may be repeated: a complete object is returned again.
  private async complete(): Promise<StoredObject> {
    return (await this.client.call("POST", "/storage/{id}/complete", undefined, { path: { id: this.id } })) as StoredObject
  }

  // missing returns the parts that are not stored yet, with new URLs. An upload that was
  // completed, but whose response was lost, has no list of parts any more.
  private async missing(): Promise<{ missing: Part[]; partSize: number }> {
    return this.list().catch((failure) => {
      if (failure instanceof KitError && failure.code === "storage/not_found") return { missing: [], partSize: 0 }
      throw failure
    })
  }

  private async list(): Promise<{ missing: Part[]; partSize: number }> {
    const missing: Part[] = []
    let stored = 0, partSize = 0
    for (let cursor: string | null | undefined; ; ) {
      const page = (await this.client.call("GET", "/storage/{id}/parts", undefined,
        { path: { id: this.id }, query: { cursor } })) as Progress
      missing.push(...page.missing)
      for (const part of page.stored) stored += part.size
      partSize = page.partSize
      cursor = page.nextCursor
      if (!cursor) break
    }
    this.stored = stored
    this.report()
    return { missing, partSize }
  }

  private async sendParts(parts: Part[], partSize: number, signal: AbortSignal): Promise<void> {
    const next = async () => {
      for (let part; !signal.aborted && (part = parts.shift()); ) await this.put(part, partSize, signal)
    }
    const lines = await Promise.allSettled(Array.from({ length: this.options.atOnce ?? 3 }, next))
    for (const line of lines) if (line.status === "rejected") throw line.reason
  }

  private async put(part: Part, partSize: number, signal: AbortSignal): Promise<void> {
    const from = (part.partNumber - 1) * partSize
    const body = this.file.slice(from, from + part.size)
    const headers: Record<string, string> = { "Content-Type": "application/octet-stream", ...part.headers }
    try {
      const status = await this.transfer(part, headers, body, signal)
      if (status !== 200 && status !== 412) // 412: it is stored, the response was lost
        throw new KitError("storage/part_refused", `The store refused a part (${status}).`, status >= 500 ? 503 : status)
      this.stored += part.size
    } finally {
      this.running.delete(part)
      this.report()
    }
  }

  // transfer sends the bytes, with progress if there is XMLHttpRequest.
  private transfer(part: Part, headers: Record<string, string>, body: Blob, signal: AbortSignal): Promise<number> {
    this.running.set(part, 0)
    if (typeof XMLHttpRequest === "undefined")
      return this.client.fetch(part.url, { method: "PUT", headers, body, signal, credentials: "omit" })
        .then((response) => response.status, (cause) => { throw KitError.network(cause) })
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest()
      const stop = () => request.abort()
      request.open("PUT", part.url)
      for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value)
      request.upload.onprogress = (e) => { this.running.set(part, e.loaded); this.report() }
      request.onloadend = () => {
        signal.removeEventListener("abort", stop)
        if (request.status) resolve(request.status)
        else reject(KitError.network(new Error("the connection broke")))
      }
      signal.addEventListener("abort", stop, { once: true })
      request.send(body)
    })
  }

  private report(): void { this.options.onProgress?.(this.sent, this.file.size) }
}
