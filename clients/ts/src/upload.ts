import { pause, type Client } from "./client.js"
import { KitError } from "./error.js"
import type { components } from "./schema.js"

type StoredObject = components["schemas"]["StorageObject"]
type Progress = components["schemas"]["StorageProgress"]
type Part = Progress["missing"][number]

export interface UploadOptions {
  /** Where it goes; the file's name by default. */
  path?: string
  contentType?: string
  visibility?: "private" | "public"
  /** The id of an upload that was begun earlier, of the same bytes. */
  id?: string
  onProgress?: (sent: number, size: number) => void
  /** How many parts travel at once, by default 3. */
  atOnce?: number
  /** How many failures in a row end the upload, by default 6. */
  retries?: number
}

export type UploadState = "paused" | "running" | "done" | "failed"

/**
 * An upload that goes on after the line broke, and can be paused, left and taken
 * up again. What is stored is asked of the server each time, so its id is all
 * there is to remember.
 */
export class Upload {
  state: UploadState = "paused"
  id: string | undefined
  private stored = 0
  private readonly running = new Map<AbortController, number>()

  constructor(private readonly client: Client, private readonly file: Blob, private readonly options: UploadOptions) {
    this.id = options.id
  }

  /** Bytes that have been sent. */
  get sent(): number {
    let bytes = this.stored
    for (const loaded of this.running.values()) bytes += loaded
    return Math.min(bytes, this.file.size)
  }

  /** Sends what is missing; undefined when it was paused. */
  async run(): Promise<StoredObject | undefined> {
    this.state = "running"
    try {
      if (this.id === undefined) this.id = await this.begin()
      await this.sendAll()
      if (this.state !== "running") return undefined
      const object = await this.client.post("/storage/{id}/complete", undefined as never, { path: { id: this.id } })
      this.state = "done"
      return object as StoredObject
    } catch (failure) {
      if (this.state !== "running") return undefined
      this.state = "failed"
      throw failure
    }
  }

  pause(): void {
    if (this.state === "running") this.state = "paused"
    for (const request of this.running.keys()) request.abort()
  }

  /** Gives the upload up and frees what it holds. */
  async cancel(): Promise<void> {
    this.pause()
    if (this.id !== undefined) await this.client.post("/storage/{id}/abort", undefined, { path: { id: this.id } })
  }

  private async begin(): Promise<string> {
    const { path, contentType, visibility } = this.options
    const started = await this.client.post("/storage", {
      path: path ?? (this.file as File).name ?? "upload",
      size: this.file.size,
      contentType: contentType ?? (this.file.type || "application/octet-stream"),
      ...(visibility && { visibility }),
    } as never)
    return (started as { object: StoredObject }).object.id
  }

  private async sendAll(): Promise<void> {
    for (let failures = 0; this.state === "running"; ) {
      const before = this.stored
      try {
        const { missing, partSize } = await this.missing()
        if (missing.length === 0) return
        await this.sendParts(missing, partSize)
      } catch (failure) {
        if (!(failure instanceof KitError) || !failure.temporary) throw failure
        failures = this.stored > before ? 1 : failures + 1
        if (failures >= (this.options.retries ?? 6)) throw failure
        await pause(failure.retryAfterMs ?? 200 * 2 ** failures * (0.5 + Math.random()))
      }
    }
  }

  // missing asks what is stored already, with fresh addresses for the rest.
  private async missing(): Promise<{ missing: Part[]; partSize: number }> {
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

  private async sendParts(parts: Part[], partSize: number): Promise<void> {
    const next = async () => {
      for (let part; this.state === "running" && (part = parts.shift()); ) await this.put(part, partSize)
    }
    const lines = await Promise.allSettled(Array.from({ length: this.options.atOnce ?? 3 }, next))
    for (const line of lines) if (line.status === "rejected") throw line.reason
  }

  private async put(part: Part, partSize: number): Promise<void> {
    const from = (part.partNumber - 1) * partSize
    const body = this.file.slice(from, from + part.size)
    const headers: Record<string, string> = { "Content-Type": "application/octet-stream", ...part.headers }
    const line = new AbortController()
    this.running.set(line, 0)
    try {
      const status = await this.transfer(line, part.url, headers, body)
      if (status !== 200 && status !== 412) // 412: it was stored, the response got lost
        throw new KitError("storage/part_refused", `The store refused a part (${status}).`, status >= 500 ? 503 : status)
      this.stored += part.size
    } finally {
      this.running.delete(line)
      this.report()
    }
  }

  // transfer sends bytes: with progress where there is XMLHttpRequest.
  private transfer(line: AbortController, url: string, headers: Record<string, string>, body: Blob): Promise<number> {
    if (typeof XMLHttpRequest === "undefined")
      return this.client.fetch(url, { method: "PUT", headers, body, signal: line.signal, credentials: "omit" })
        .then((response) => response.status, (cause) => { throw KitError.network(cause) })
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest()
      request.open("PUT", url)
      for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value)
      request.upload.onprogress = (e) => { this.running.set(line, e.loaded); this.report() }
      request.onloadend = () => request.status ? resolve(request.status) : reject(KitError.network(new Error("the connection broke")))
      line.signal.addEventListener("abort", () => request.abort(), { once: true })
      request.send(body)
    })
  }

  private report(): void { this.options.onProgress?.(this.sent, this.file.size) }
}
