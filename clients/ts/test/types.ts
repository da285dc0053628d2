// What the types allow and refuse; the compiler reads it, nobody runs it.
import { createClient } from "../src/index.js"

const kit = createClient()

// A key is for the calls whose document has the header: of others the server would
// not know that they are repeated.
void kit.post("/multiplayer/games/{game}", undefined, { path: { game: "duel" }, idempotencyKey: true })
void kit.post("/multiplayer/sessions/{id}/action", {}, { path: { id: "1" }, idempotencyKey: true })
// @ts-expect-error
void kit.post("/matchmaking/games/{game}/rooms", undefined, { path: { game: "duel" }, idempotencyKey: true })
// @ts-expect-error
void kit.delete("/storage/{id}", { path: { id: "1" }, idempotencyKey: "a" })

// The parameters of a path are needed where it has them.
void kit.get("/auth/devices")
// @ts-expect-error
void kit.get("/ledger/{currency}")
