// What the types allow and refuse; it is compiled, not run.
import { createClient, type OnState } from "../src/index.js"

const kit = createClient()

// A key is only for calls that have the header in the document: the server would not
// recognize a repetition of another.
void kit.post("/multiplayer/games/{game}", undefined, { path: { game: "duel" }, idempotencyKey: true })
void kit.post("/multiplayer/sessions/{id}/action", {}, { path: { id: "1" }, idempotencyKey: true })
// @ts-expect-error
void kit.post("/matchmaking/games/{game}/rooms", undefined, { path: { game: "duel" }, idempotencyKey: true })
// @ts-expect-error
void kit.delete("/storage/{id}", { path: { id: "1" }, idempotencyKey: "a" })

// The parameters of a path are required if it has them.
void kit.get("/auth/devices")
// @ts-expect-error
void kit.get("/ledger/{currency}")

// Both kinds of connections say why they have ended.
const why: OnState = (state, code, refusal) => console.log(state, code?.toFixed(), refusal?.code)
kit.presence(() => {}, (state, code, refusal) => why(state, code, refusal)).stop()
kit.session("1", { onView() {}, onState: why }).stop()

// Routes of sign-in have the query parameters that they read.
void kit.get("/auth/verify-email", { query: { token: "t" } })
void kit.post("/auth/magic-link/verify", undefined, { query: { token: "t", callbackURL: "/" } })
void kit.post("/auth/delete-user/callback", undefined, { query: { token: "t" } })
void kit.get("/auth/account-info", { query: { accountId: "1" } })
void kit.get("/auth/passkey/generate-register-options", { query: { authenticatorAttachment: "platform" } })
// @ts-expect-error
void kit.get("/auth/verify-email", { query: { tokens: "t" } })
