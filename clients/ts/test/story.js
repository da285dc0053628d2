// Stories of the typed client against a running quickstart, in Node and in a browser.
// Each story throws if a result is not as expected.

const must = (ok, what) => { if (!ok) throw new Error(what) }

const until = async (f, what) => {
  for (let tries = 0; !f(); tries++) {
    must(tries < 200, what())
    await new Promise((resolve) => setTimeout(resolve, 25))
  }
}

/** Signs in as anybody, and again when the token has ended. */
export async function signIn({ createClient }, base, name) {
  const nobody = createClient({ baseUrl: base, credentials: { accessToken: "" } })
  const enter = () => nobody.get("/__kit/dev-login", { query: { user: name } })
  return createClient({ baseUrl: base, credentials: { ...(await enter()), renew: enter } })
}

/** Two players meet in the queue and play to the end. */
export async function play(kit, base) {
  const players = await Promise.all(["player1", "player2"].map((name) => signIn(kit, base, name)))
  const ends = players.map(async (player) => {
    let found
    const met = new Promise((resolve) => { found = resolve })
    const presence = player.presence((event) => { if (event.type === "match_found") found(event.sessionId) })
    await player.post("/matchmaking/games/{game}/queue", {}, { path: { game: "duel" } })
    const id = await met
    presence.stop()
    return new Promise((resolve, reject) => {
      let acting = -1
      const session = player.session(id, {
        onView: async (view) => {
          if (view.phase !== "active" || view.version === acting || view.players[view.state.turn] !== view.you) return
          acting = view.version
          try { await session.act({ take: Math.min(3, view.state.stones) }) } catch (error) { reject(error) }
        },
        onEnd: async (end) => {
          session.stop()
          const late = await session.act({ take: 1 }).catch((error) => error)
          resolve({ end, view: session.view, late })
        },
        onError: reject,
      })
    })
  })
  for (const { end, view, late } of await Promise.all(ends)) {
    must(end.phase === "resolved", "the match ended as " + end.phase)
    must(view.state.stones === 0 && end.result, "the last view is not the end")
    must(late.code === "multiplayer/invalid_transition", "an action after the end failed as " + late.code)
  }
}

/** Buys at a scripted store, and sees what it unlocks. */
export async function buy(kit, base) {
  const client = await signIn(kit, base, "buyer")
  const bought = await fetch(base + "/buy", { method: "POST", body: new URLSearchParams({ user: "buyer" }), credentials: "omit" })
  must(bought.status === 204, "the store did not sell")
  for (let tries = 0; ; tries++) {
    const list = JSON.stringify(await client.get("/payments/entitlements"))
    if (/"key":"pro"[^}]*"active":true/.test(list)) return
    must(tries < 100, "nothing was unlocked: " + list)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** Uploads a file whose connection is cut, and again from where another left it. */
export async function upload(kit, base) {
  const client = await signIn(kit, base, "uploader")
  const bytes = new Uint8Array(11 << 20).map((_, i) => i % 251)
  const file = new Blob([bytes], { type: "video/mp4" })
  let last = 0
  const first = client.upload(file, { path: "film.mp4", onProgress: (sent, size) => { must(sent <= size, "sent more than there is"); last = sent } })
  const object = await first.run()
  must(object?.state === "ready" && object.size === bytes.length, "the upload is not whole: " + JSON.stringify(object))
  must(last === bytes.length, "the progress ended at " + last)

  const begun = []
  const left = client.upload(file, { path: "again.mp4", atOnce: 1, onBegun: (id) => { begun.push(id) }, onProgress: (sent) => { if (sent > 0) left.pause() } })
  const flicked = left.run()
  left.pause()
  must((await left.run()) === undefined && (await flicked) === undefined && left.state === "paused", "it was not paused")
  must(begun.length === 1 && begun[0] === left.id, "it was begun as " + begun)
  const resumed = client.upload(file, { id: left.id })
  must((await resumed.run())?.state === "ready", "it was not taken up again")
  const bytesBack = await client.get("/storage/{id}", { path: { id: object.id } })
  must(bytesBack instanceof Blob, "the bytes came back as " + typeof bytesBack)
  must(new Uint8Array(await bytesBack.arrayBuffer()).every((byte, i) => byte === bytes[i]) && bytesBack.size === bytes.length, "other bytes came back")
  const paths = []
  for (const { path } of (await client.get("/storage", { query: { prefix: "" } })).items) paths.push(path)
  must(paths.includes("film.mp4") && paths.includes("again.mp4"), "the list lacks one: " + paths)
}

/** Refusals have a code; lists are read to their end; a key counts once. */
export async function calls(kit, base) {
  const client = await signIn(kit, base, "caller")
  const refused = await client.get("/ledger/{currency}", { path: { currency: "pounds" } }).catch((error) => error)
  must(refused instanceof kit.KitError && refused.code === "ledger/currency_not_found" && refused.status === 404 && refused.requestId,
    "the refusal is " + JSON.stringify(refused))
  const made = []
  const idempotencyKey = "client-" + Math.random()
  for (let i = 0; i < 2; i++)
    made.push(await client.post("/multiplayer/games/{game}", undefined, { path: { game: "duel" }, idempotencyKey }))
  must(made[0].id === made[1].id, "one key made two sessions")
  const told = new Set()
  const presence = client.presence((event) => told.add(event.type), (state) => told.add(state))
  for (const name of ["one", "two", "three"]) {
    const friend = await signIn(kit, base, "friend-" + name)
    await friend.post("/matchmaking/friends/{userId}/request", undefined, { path: { userId: "caller" } })
    await client.post("/matchmaking/friends/{userId}/accept", undefined, { path: { userId: "friend-" + name } })
  }
  let friends = 0
  for await (const friend of client.list("/matchmaking/friends", { query: { limit: 2 } })) friends += friend ? 1 : 0
  must(friends === 3, "the list has " + friends)
  await until(() => told.has("open") && told.has("friends_online"), () => "told of " + [...told])
  await (await signIn(kit, base, "friend-four")).post("/matchmaking/friends/{userId}/request", undefined, { path: { userId: "caller" } })
  await until(() => told.has("friend_request"), () => "told of " + [...told])
  presence.stop()
  const nowhere = kit.createClient({ baseUrl: "http://127.0.0.1:9", retries: 0, credentials: { accessToken: "" } })
  must((await nowhere.get("/health").catch((error) => error)).code === "network", "no response is no KitError")
}

/** A line over which nothing comes is made again; a page that is shown again does not wait. */
export async function lines({ createClient }) {
  const made = []
  class Silent {
    readyState = 1
    sent = []
    constructor() { made.push(this); setTimeout(() => this.onopen?.()) }
    send(text) { this.sent.push(JSON.parse(text).type) }
    close() {}
  }
  const states = []
  const client = createClient({ baseUrl: "http://nowhere", credentials: { accessToken: "x" }, webSocket: Silent, quietMs: 40 })
  const presence = client.presence(() => {}, (state) => states.push(state))
  await until(() => made.length === 2, () => "a dead line was not made again: " + states)
  must(made[0].sent.join() === "ping" && states.slice(0, 2).join() === "open,lost", `sent ${made[0].sent}, was ${states}`)
  if (globalThis.document) {
    made.at(-1).onclose({ code: 1013, reason: '{"retryAfterMs":60000}' })
    document.dispatchEvent(new Event("visibilitychange"))
    await until(() => made.length === 3, () => "the page waits though it is shown")
  }
  presence.stop()
}

/** A handshake that fails counts once, whether an error, a close or both say so. */
export async function handshakes({ createClient }) {
  for (const events of [["error"], ["error", "close"], ["close"]]) {
    const made = []
    class Failing { // twice
      readyState = 0
      constructor() { if (made.push(this) < 3) setTimeout(() => events.forEach((name) => this["on" + name]?.({ code: 1006, reason: "" }))) }
      send() {}
      close() { this.onerror?.({}) } // as Node's does before the handshake is done
    }
    const states = []
    const fetch = scripted({ "/matchmaking/presence": () => [200, {}] })
    const presence = createClient({ baseUrl: "http://nowhere", credentials: { accessToken: "x" }, webSocket: Failing, fetch })
      .presence(() => {}, (state, code) => states.push(state + " " + code))
    await until(() => made.length > 2, () => `${events}: ${made.length} attempts, ${states}`)
    must(states.join() === "lost 1006,lost 1006", `${events}: two failures were ${states}`)
    presence.stop()
  }
}

/** A socket that cannot be made is lost; where there is none at all, the caller is told at once. */
export async function sockets({ createClient }) {
  class Refused {
    constructor() { throw new DOMException("not from this page", "SecurityError") }
  }
  const states = []
  const client = (webSocket) => createClient({ baseUrl: "http://nowhere", credentials: { accessToken: "x" }, webSocket, fetch: scripted({ "": () => [200, {}] }) })
  const presence = client(Refused).presence(() => {}, (state, code) => states.push(state + " " + code))
  await until(() => states.length > 1, () => "a socket that cannot be made was " + states)
  must(states[1] === "lost 1006", "a socket that cannot be made was " + states)
  presence.stop()

  const { WebSocket } = globalThis
  globalThis.WebSocket = undefined
  try {
    client(undefined).presence(() => {})
    must(false, "presence began without WebSocket")
  } catch (error) {
    must(error instanceof TypeError && /webSocket/.test(error.message), "without WebSocket presence failed with " + error)
  } finally {
    globalThis.WebSocket = WebSocket
  }
}

// scripted answers calls by the ends of their addresses and methods: with a status
// and a body, with a Response, or by throwing.
const scripted = (answers, asked = []) => async (url, { method, headers }) => {
  const call = method + " " + new URL(url).pathname
  asked.push(call)
  const answer = await Object.entries(answers).find(([end]) => call.endsWith(end))[1](headers)
  return answer instanceof Response ? answer
    : new Response(JSON.stringify(answer[1]), { status: answer[0], headers: { "Content-Type": "application/json", ...answer[2] } })
}
const refused = (status, code, headers) => [status, { error: { code, message: "No.", requestId: "1" } }, headers]
const lost = () => { throw new TypeError("the line broke") }
const within = (promise) => Promise.race([promise, new Promise((resolve) => setTimeout(resolve, 2000, { code: "never" }))])

/** A proof that cannot be renewed just now is not one that has ended. */
export async function proofs({ createClient, KitError }) {
  const anyone = (fetch, retries = 0) => createClient({ baseUrl: "http://nowhere", retries, timeoutMs: 50, fetch,
    credentials: { accessToken: "old", refreshToken: "r" } })
  const awake = setInterval(() => {}, 1000) // Node ends when it waits for nothing but a limit
  for (const [want, rotation] of [["network", lost], ["network", () => new Response("<html>")], ["network", () => new Promise(() => {})],
    ["kit/rate_limited", () => refused(429, "kit/rate_limited")], ["http/502", () => new Response("<html>", { status: 502 })], ["auth/unauthenticated", () => refused(401, "auth/refresh_invalid")]]) {
    const limited = (_, { signal }) => new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)))
    const answer = scripted({ "/auth/devices": () => refused(401, "auth/unauthenticated"), "/auth/token/rotate": rotation })
    const error = await within(anyone((...call) => Promise.race([answer(...call), limited(...call)])).get("/auth/devices").catch((e) => e))
    must(error instanceof KitError && error.code === want, `a rotation failed as ${error.code ?? error}, want ${want}`)
  }
  clearInterval(awake)
  let tries = 0
  const again = anyone(scripted({
    "/auth/devices": (headers) => headers.get("Authorization") === "Bearer new" ? [200, { items: [], nextCursor: null }] : refused(401, "auth/unauthenticated"),
    "/auth/token/rotate": () => tries++ ? [200, { accessToken: "new" }] : lost() }), 1)
  must((await again.get("/auth/devices")).items, "what may be repeated was not, once the proof could be renewed")

  // A page of another host learns the CSRF token of its session by a refusal.
  const asked = []
  const elsewhere = createClient({ baseUrl: "http://nowhere", fetch: scripted({
    "/sessions/1/join": (headers) => headers.get("X-CSRF-Token") === "told" ? [200, {}] : refused(403, "auth/csrf", { "X-CSRF-Token": "told" }),
    "/sessions/2/join": () => refused(403, "auth/csrf", { "X-CSRF-Token": "told" }) }, asked) })
  if (globalThis.document) document.cookie = "kit_csrf=of-this-host"
  const join = (id) => elsewhere.post("/multiplayer/sessions/{id}/join", undefined, { path: { id } })
  await join("1")
  must((await join("2").catch((error) => error)).code === "auth/csrf", "a refusal was lost")
  must(asked.length === 3, "asked " + asked)
}

/** A proof of the password lets a program change how its user signs in. */
export async function confirmation({ createClient }, base) {
  const visitor = createClient({ baseUrl: base, credentials: { accessToken: "" } })
  const name = "confirm" + Math.random().toString(36).slice(2), password = "correct horse battery"
  const signed = await visitor.post("/auth/sign-up/email", { email: name + "@example.com", password, name }, { headers: { "X-Kit-Transport": "body" } })
  const user = createClient({ baseUrl: base, credentials: { accessToken: signed.token } })
  const change = () => user.post("/auth/change-email", { newEmail: name + "@example.org" })
  must((await change().catch((error) => error)).code === "SESSION_NOT_FRESH", "an access token alone changed the address")
  await user.post("/auth/verify-password", { password })
  must((await change()).status, "the proof did not suffice")
}

/** A CSRF token goes to the host alone whose cookie holds it. */
export async function secrecy({ createClient }) {
  if (!globalThis.document) return
  const saved = document.cookie.match(/kit_csrf=([^;]*)/)?.[1]
  document.cookie = "kit_csrf=of-this-host"
  const told = []
  for (const baseUrl of [location.origin, "/api", location.protocol + "//other.example"])
    await createClient({ baseUrl, fetch: async (_, { headers }) => { told.push(headers.get("X-CSRF-Token")); return new Response() } }).post("/auth/sign-out", {})
  document.cookie = saved === undefined ? "kit_csrf=; max-age=0" : "kit_csrf=" + saved
  must(told.join() === "of-this-host,of-this-host,", "told " + told)
}

/** A value names what it names: no path parameter leads to another path. */
export async function paths({ createClient }) {
  const asked = []
  const client = createClient({ baseUrl: "http://nowhere", credentials: { accessToken: "x" }, fetch: scripted({ "": () => [200, {}] }, asked) })
  const calls = [
    ...[".", ".."].map((id) => client.delete("/storage/{id}", { path: { id } })),
    client.call("DELETE", "/files/{rest}", undefined, { path: { rest: "a/../../storage/1" } }),
  ]
  for (const call of await Promise.allSettled(calls)) must(call.reason instanceof TypeError, "asked " + asked)
  await client.delete("/storage/{id}", { path: { id: "..a/%2e" } })
  await client.call("GET", "/files/{rest}", undefined, { path: { rest: "a/b..c" } })
  must(asked.join() === "DELETE /storage/..a%2F%252e,GET /files/a/b..c", "asked " + asked)
}

/** An upload whose completion was not heard of is complete. */
export async function completion({ createClient }) {
  let completed = 0
  const answers = {
    "POST /storage": () => [201, { object: { id: "1" } }],
    "/parts": () => completed ? refused(404, "storage/not_found") : [200, { missing: [], stored: [], partSize: 1, nextCursor: null }],
    "/complete": () => completed++ ? [200, { id: "1", state: "ready" }] : lost(),
  }
  const client = createClient({ baseUrl: "http://nowhere", credentials: { accessToken: "x" }, fetch: scripted(answers) })
  must((await client.upload(new Blob(["a"])).run())?.state === "ready", "a lost response lost the upload")
  must((await client.upload(new Blob(["a"]), { id: "1" }).run())?.state === "ready", "a complete upload cannot be taken up")
  answers["/complete"] = () => refused(404, "storage/not_found")
  must((await client.upload(new Blob(["a"]), { id: "2" }).run().catch((error) => error)).code === "storage/not_found", "no upload was taken up")
}

/** An upload that takes longer than the addresses of its parts live gets fresh ones. */
export async function addresses({ createClient, KitError }) {
  if (globalThis.XMLHttpRequest) return // pages send parts with it
  for (const status of [401, 403]) {
    let lists = 0, stored = 0
    const part = (partNumber, at = lists) => ({ partNumber, size: 1, url: "http://nowhere/stored/" + at })
    const answers = {
      "POST /storage": () => [201, { object: { id: "1" } }],
      "/parts": () => (lists++, [200, { missing: stored ? [part(2)] : [part(1), part(2)], stored: [], partSize: 1, nextCursor: null }]),
      "/stored/1": () => stored++ ? [status, {}] : [200, {}],
      "/stored/2": () => (answers["/parts"] = () => [200, { missing: [], stored: [], partSize: 1, nextCursor: null }], [200, {}]),
      "/stored/never": () => [status, {}],
      "/complete": () => [200, { id: "1", state: "ready" }],
    }
    const client = createClient({ baseUrl: "http://nowhere", credentials: { accessToken: "x" }, fetch: scripted(answers) })
    must((await client.upload(new Blob(["ab"]), { atOnce: 1 }).run().catch((error) => error)).state === "ready", `an address that was over, by a ${status}, ended the upload`)
    answers["/parts"] = () => [200, { missing: [part(1, "never")], stored: [], partSize: 1, nextCursor: null }]
    const refusal = await client.upload(new Blob(["ab"]), { id: "1", retries: 2 }).run().catch((error) => error)
    must(refusal instanceof KitError && refusal.status === status, "a store that takes no part was asked for good")
  }
}

/** An action that has no response when the game ends has that of the server. */
export async function last({ createClient }) {
  let socket
  class Ending { // acknowledges nothing
    readyState = 1
    constructor() { socket = this; setTimeout(() => { this.onopen?.(); this.receive({ type: "hello", ts: 0 }) }) }
    receive(frame) { this.onmessage?.({ data: JSON.stringify(frame) }) }
    send() {}
    close() {}
  }
  const keys = []
  const fetch = scripted({ "POST /multiplayer/sessions/1/action": (headers) => {
    keys.push(headers.get("Idempotency-Key"))
    return keys.length === 1 ? [200, { version: 7 }] : refused(409, "multiplayer/invalid_transition")
  } })
  const states = []
  const client = createClient({ baseUrl: "http://nowhere", credentials: { accessToken: "x" }, webSocket: Ending, fetch })
  const session = client.session("1", { onView() {}, onState: (state) => states.push(state), onEnd: () => session.stop() })
  const acts = [session.act({}), session.act({})]
  await until(() => states.length, () => "it did not open")
  socket.receive({ type: "closed", phase: "resolved", result: null })
  acts.push(session.act({}))
  const [counted, late, after] = await within(Promise.allSettled(acts))
  must(counted.value === 7, "an action that counted is " + counted.reason?.code)
  for (const { reason } of [late, after])
    must(reason?.code === "multiplayer/invalid_transition" && !reason.temporary, "an action after the end failed as " + reason?.code)
  must(new Set(keys).size === 3, "the actions were repeated as " + keys)

  const act = client.session("1", { onView() {} }).act({}).catch((error) => error)
  await until(() => socket.onclose, () => "it did not connect")
  socket.onclose({ code: 4003, reason: "multiplayer/not_a_member" })
  must((await within(act)).code === "multiplayer/not_a_member", "an action of a former player failed as " + (await act).code)
}

/** A session that is over says so to who acts, and one that is not there ends. */
export async function ends({ createClient }, base) {
  const made = []
  class Refusing { // each handshake is refused
    readyState = 0
    constructor() { made.push(this); setTimeout(() => this.onclose?.({ code: 1006, reason: "" })) }
    send() {}
    close() {}
  }
  const client = (more) => createClient({ baseUrl: "http://nowhere", retries: 0, credentials: { accessToken: "x", refreshToken: "r" }, webSocket: Refusing, ...more })
  const states = []
  const note = (state, code, refusal) => states.push(state + " " + code + " " + refusal?.code)
  const session = client({ fetch: scripted({ "/multiplayer/sessions/1": () => refused(404, "multiplayer/session_not_found") }) })
    .session("1", { onView() {}, onState: note })
  const missing = "multiplayer/session_not_found"
  const early = session.act({}).catch((error) => error)
  must((await within(early)).code === missing && states.at(-1) === "ended 4003 " + missing, "a session that is not there was " + states)
  must((await within(session.act({}).catch((error) => error))).code === missing, "an action after the end was taken")

  // A credential that is refused and cannot be renewed ends the connections.
  const dead = { "/rotate": () => refused(401, "auth/refresh_invalid"), "": () => refused(401, "auth/unauthenticated") }
  for (const user of [client({ fetch: scripted(dead) }), createClient({ baseUrl: base, credentials: { accessToken: "x", refreshToken: "r" } })]) {
    states.length = 0
    user.presence(() => {}, note)
    await until(() => states.length > 1, () => "without a credential presence was " + states)
    const act = user.session("1", { onView() {}, onState: note }).act({}).catch((error) => error)
    must((await within(act)).code === "auth/unauthenticated", "an action without a credential failed as " + (await within(act)).code)
    must(states.join() === "lost 1006 undefined,ended 4001 auth/unauthenticated,lost 1006 undefined,ended 4001 auth/unauthenticated",
      "without a credential the connections were " + states)
  }

  // A connection returns although the token could not be renewed for a while.
  made.length = 0
  const presence = client({ fetch: scripted({ "/matchmaking/presence": () => refused(401, "auth/unauthenticated"), "/rotate": () => new Response("<html>") }) })
    .presence(() => {})
  await until(() => made.length > 1, () => "the line did not come back")
  presence.stop()

  // A page that becomes visible while the token is renewed opens one connection.
  if (!globalThis.document) return
  made.length = 0
  let asked = 0, answer
  const woken = client({ fetch: scripted({ "/matchmaking/presence": () => { asked++; return new Promise((resolve) => { answer = resolve }) } }) }).presence(() => {})
  await until(() => asked, () => "the refused handshake was not looked into")
  dispatchEvent(new Event("online"))
  await until(() => made.length === 2, () => "the page waits though it is on line")
  made[1].onclose = null // this one is accepted
  answer([200, {}])
  await new Promise((resolve) => setTimeout(resolve, 50))
  must(made.length === 2, made.length - 1 + " lines were opened at once")
  woken.stop()
}

export const stories = { calls, play, buy, upload, lines, handshakes, sockets, proofs, confirmation, secrecy, paths, completion, addresses, last, ends }
