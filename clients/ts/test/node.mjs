// node.mjs DIST BASE: the stories in Node.
import { createServer } from "node:http"
import { pathToFileURL } from "node:url"
import { stories } from "./story.js"

const [dist, base] = process.argv.slice(2)
const kit = await import(pathToFileURL(dist + "/index.js"))
for (const [name, story] of Object.entries(stories)) {
  try {
    await story(kit, base)
  } catch (error) {
    console.error(name, error)
    process.exit(1)
  }
}

// The refresh token that a program stores is rotated when the access token has expired.
const login = await fetch(base + "/__kit/dev-login?user=native")
const cookie = login.headers.getSetCookie().find((c) => c.includes("kit_refresh"))
const renewed = []
const credentials = { accessToken: (await login.json()).accessToken, refreshToken: cookie.split(";")[0].split("=")[1], onRenewed: (t) => renewed.push(t) }
const native = kit.createClient({ baseUrl: base, credentials })
await fetch(base + "/test/expire", { method: "POST" })
if ((await native.get("/auth/get-session"))?.user.id !== "native" || !(await native.get("/auth/list-sessions")).length) {
  console.error("an access token that has expired was not renewed for the routes of sign-in")
  process.exit(1)
}
const both = await Promise.all([native.get("/ledger/{currency}", { path: { currency: "coins" } }), native.get("/auth/devices")])
if (!both[0].currency || renewed.length !== 1 || !renewed[0].refreshToken) {
  console.error("renewed", renewed, both)
  process.exit(1)
}

// A call that takes too long fails, and so does one that may be tried again only much later.
const slow = (answer) => kit.createClient({ baseUrl: base, timeoutMs: 50, retries: 1, fetch: answer })
const never = (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)))
const awake = setInterval(() => {}, 1000) // Node ends when it waits for nothing but such a limit
const failed = await Promise.all([never, async () => new Response("{}", { status: 429, headers: { "Retry-After": "60" } })].map(
  (answer) => slow(answer).get("/health").catch(({ code, retryAfterMs }) => code + " " + retryAfterMs)))
clearInterval(awake)
if (failed.join() !== "network undefined,http/429 60000") {
  console.error("slow calls failed with", failed)
  process.exit(1)
}

// A page of another host cannot read the cookie of the CSRF token: responses contain it.
const sent = []
const elsewhere = kit.createClient({
  baseUrl: base,
  fetch: async (_, { headers }) => {
    sent.push(headers.get("X-CSRF-Token"))
    return new Response("{}", { headers: { "Content-Type": "application/json", "X-CSRF-Token": "heard" } })
  },
})
await elsewhere.get("/auth/devices")
await elsewhere.post("/auth/sign-out", {})
if (sent[0] !== null || sent[1] !== "heard") {
  console.error("the CSRF token", sent)
  process.exit(1)
}
// The platform's socket reports a refused handshake, and a server that is down, by events
// of its own.
let refusals = 0
const refusing = createServer((_, response) => { refusals++; response.writeHead(503).end() })
await new Promise((resolve) => refusing.listen(0, "localhost", resolve))
const baseUrl = "http://localhost:" + refusing.address().port
const lostTwice = () => new Promise((resolve, reject) => {
  const late = setTimeout(() => reject(new Error("the failed handshakes were " + states)), 10_000)
  const states = []
  const presence = kit.createClient({ baseUrl, credentials: { accessToken: "x" }, fetch: async () => new Response("{}") })
    .presence(() => {}, (state) => {
      if (states.push(state) < 2) return
      clearTimeout(late)
      presence.stop()
      resolve()
    })
})
await lostTwice()
if (refusals !== 2) {
  console.error("refused handshakes", refusals)
  process.exit(1)
}
await new Promise((resolve) => refusing.close(resolve))
await lostTwice()
console.log("done")
process.exit(0)
