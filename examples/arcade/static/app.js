// The rooms of the arcade: signing in, the lobby, and a table.
import { createClient } from "/client/index.js"
import { $, h, toast } from "./dom.js"
import { seedHash } from "./fair.js"
import * as bones from "./bones.js"
import * as eights from "./eights.js"

const games = { bones, eights }
let me = "" // the player of this tab
let kit = null // the client of that player
const show = (id) => { for (const room of ["signin", "lobby", "table"]) $(room).hidden = room !== id }
const attempt = (work) => async (...args) => {
  try { return await work(...args) } catch (refusal) { toast(refusal.message ?? String(refusal)) }
}
const stored = {
  get: (key) => localStorage.getItem(`arcade.${me}.${key}`),
  set: (key, value) => value === null ? localStorage.removeItem(`arcade.${me}.${key}`) : localStorage.setItem(`arcade.${me}.${key}`, value),
}

// Signing in. The name stays in the URL, so that a tab that was killed returns as the
// same player.

$("login").onsubmit = attempt(async (event) => {
  event.preventDefault()
  await enter($("player").value.trim())
})

// A dead connection is noticed in seconds, because another player waits.
const patience = { timeoutMs: 10_000, quietMs: 4_000 }
const nobody = createClient({ ...patience, credentials: { accessToken: "" } })

async function enter(name) {
  const renew = () => nobody.get("/__kit/dev-login", { query: { user: name } })
  const proof = await renew()
  kit = createClient({ ...patience, credentials: { ...proof, renew } })
  me = proof.userId
  history.replaceState(null, "", "#" + me)
  $("name").textContent = me
  $("purse").hidden = false
  await kit.post("/arcade/welcome")
  presence.start()
  const session = stored.get("session")
  if (session) await sit(session, stored.get("game"))
  else await lobby()
}

$("signout").onclick = () => { location.hash = ""; location.reload() }
$("home").onclick = (event) => { event.preventDefault(); if (me) lobby() }

// Presence: which players are online, and their invitations.

const presence = {
  online: new Set(),
  start() {
    kit.presence((event) => this.take(event), (state) => {
      if (state === "open") this.online.clear()
      $("presence").classList.toggle("on", state === "open")
      $("presenceword").textContent = state === "open" ? "online" : "offline"
    })
  },
  take(event) {
    switch (event.type) {
      case "match_found": found(event.sessionId, event.gameKey); break
      case "match_failed": if (queue.game === event.gameKey) ask(); break
      case "invite": toast(`${event.from} invites you to ${games[event.gameKey].title}`, "news"); people(); break
      case "friend_request": toast(`${event.from} wants to be friends`, "news"); people(); break
      case "friends_online":
        for (const name of event.online) this.online.add(name)
        for (const name of event.offline) this.online.delete(name)
        people()
    }
  },
}

// The lobby.

const lobby = attempt(async () => {
  table?.leave()
  show("lobby")
  const next = JSON.parse(stored.get("next"))
  if (next && !stored.get("session")) {
    for (const key of ["session", "game"]) stored.set(key, next[key])
    stored.set("next", null)
  }
  await Promise.all([running(), people(), boards(), purse()])
})

// running lists the games that are not over, on whichever device they began.
async function running() {
  const { items } = await kit.get("/arcade/running")
  if (!items.some((item) => item.sessionId === stored.get("session"))) for (const key of ["session", "game", "code"]) stored.set(key, null)
  $("resume").replaceChildren(...items.map((item) => {
    const others = item.players.filter((name) => name !== me)
    return h("section.banner", {},
      h("span", {}, `Your game of ${games[item.game].title} ${item.phase === "open" ? "waits for players" : "is not over"}`, others.length ? ` · with ${others.join(", ")}` : ""),
      h("button.hot", { type: "button", onclick: () => sit(item.sessionId, item.game) }, "Back to the table"))
  }))
}

async function purse() {
  const [coins, rating] = await Promise.all([kit.get("/ledger/{currency}", { path: { currency: "coins" } }), kit.get("/rating/games/{game}/me", { path: { game: "bones" } })])
  $("coins").textContent = coins.available
  $("held").textContent = coins.held ? `+${coins.held} staked` : ""
  $("skill").textContent = rating.rating === undefined ? "–" : Math.round(rating.rating)
  return rating
}

const people = attempt(async () => {
  if ($("lobby").hidden) return
  const [friends, invites] = await Promise.all([kit.get("/matchmaking/friends", { query: { limit: 200 } }), kit.get("/matchmaking/invites")])
  const act = (label, work, kind = "quiet") => h(`button.${kind}`, { type: "button", onclick: attempt(async () => { await work(); await people() }) }, label)
  const answer = (friend, word) => kit.post("/matchmaking/friends/{userId}/" + word, undefined, { path: { userId: friend.userId } })
  const reply = (invite, word) => kit.post("/matchmaking/invites/{id}/" + word, undefined, { path: { id: invite.id } })
  $("invites").replaceChildren(...invites.items.filter((i) => i.to === me && i.state === "pending").map((i) =>
    h("li.news", {}, h("span", {}, h("b", {}, i.from), ` asks for ${games[i.gameKey].title}`),
      act("Play", async () => found((await reply(i, "accept")).sessionId, i.gameKey), "hot"),
      act("No", () => reply(i, "decline")))))
  const remove = (friend, label, question) => act(label, async () => {
    if (!question || confirm(question)) await kit.delete("/matchmaking/friends/{userId}", { path: { userId: friend.userId } })
  })
  const invite = (friend, game) => act(`Invite to ${games[game].title}`, async () => {
    await kit.post("/matchmaking/games/{game}/invites", { userId: friend.userId }, { path: { game } })
    toast(`Invited ${friend.userId} to ${games[game].title}`, "news")
  })
  $("friends").replaceChildren(...friends.items.map((friend) => {
    const online = friend.online || presence.online.has(friend.userId)
    const who = h("span", {}, h(`i.dot${online ? ".on" : ""}`), h("b", {}, friend.userId), h("small", {}, online ? "online" : "offline"))
    switch (friend.state) {
      case "incoming": return h("li.news", {}, who, act("Accept", () => answer(friend, "accept"), "hot"), act("No", () => answer(friend, "decline")))
      case "outgoing": return h("li", {}, who, h("small", {}, "asked"), remove(friend, "Take back"))
      default: return h("li", {}, who, invite(friend, "bones"), invite(friend, "eights"), remove(friend, "Unfriend", `End the friendship with ${friend.userId}?`))
    }
  }))
  if (!friends.items.length) $("friends").replaceChildren(h("li.none", {}, "Nobody yet. Add somebody by name, or share a room code."))
})

$("befriend").onsubmit = attempt(async (event) => {
  event.preventDefault()
  await kit.post("/matchmaking/friends/{userId}/request", undefined, { path: { userId: $("friend").value.trim() } })
  $("friend").value = ""
  await people()
})

$("join").onsubmit = attempt(async (event) => {
  event.preventDefault()
  const joined = await kit.post("/matchmaking/rooms/{code}/join", undefined, { path: { code: $("code").value.trim() } })
  $("code").value = ""
  await sit(joined.sessionId, joined.gameKey)
})

for (const button of document.querySelectorAll("[data-room]")) {
  button.onclick = attempt(async () => {
    const room = await kit.post("/matchmaking/games/{game}/rooms", undefined, { path: { game: button.dataset.room } })
    stored.set("code", room.code)
    await sit(room.sessionId, button.dataset.room)
  })
}

// The queue: presence reports a match, and so does polling from time to time.

const queue = { game: null }
for (const button of document.querySelectorAll("[data-queue]")) button.onclick = attempt(() => search(button.dataset.queue))

async function search(game) {
  if (queue.game) await cancel()
  queue.game = game
  await kit.post("/matchmaking/games/{game}/queue", {}, { path: { game } }).catch((refusal) => { queue.game = null; throw refusal })
  await ask()
}

const ask = attempt(async () => {
  clearTimeout(queue.timer)
  const { game } = queue
  if (!game) return
  const standing = await kit.get("/matchmaking/games/{game}/queue", { path: { game } })
  if (queue.game !== game) return
  if (standing.state === "matched") return found(standing.sessionId, game)
  if (standing.state === "failed") {
    stopSearching()
    return toast("You do not cover the stake of this game.")
  }
  const seconds = Math.floor(standing.waitedMs / 1000)
  $("searching").hidden = false
  $("searching").replaceChildren(h("i.spinner"), h("span", {}, h("b", {}, `Looking for a game of ${games[game].title}`), h("small", {}, ` ${seconds} s${standing.band ? `, ratings within ${Math.round(standing.band)}` : ""}`)),
    h("button.quiet", { type: "button", onclick: attempt(cancel) }, "Cancel"))
  queue.timer = setTimeout(ask, 1000)
})

function stopSearching() {
  clearTimeout(queue.timer)
  queue.game = null
  $("searching").hidden = true
}

async function cancel() {
  const { game } = queue
  stopSearching()
  await kit.delete("/matchmaking/games/{game}/queue", { path: { game } })
}

const found = attempt(async (session, game) => {
  stopSearching()
  if (table?.session.id === session) return
  if (table?.live) {
    stored.set("next", JSON.stringify({ session, game }))
    return toast(`A game of ${games[game].title} waits for you in the lobby.`, "news")
  }
  await kit.post("/multiplayer/sessions/{id}/join", undefined, { path: { id: session } }) // in an invite to play for coins the inviter has not joined yet
  await sit(session, game)
})

// Boards.

const league = { board: "league" }

async function boards() {
  const [top, health, rating] = await Promise.all([
    kit.get("/leaderboard/{board}/top", { path: league, query: { limit: 8 } }), kit.get("/arcade/health"), purse()])
  rows("top", top.items)
  let mine = null
  try {
    mine = await kit.get("/leaderboard/{board}/me", { path: league })
    rows("around", (await kit.get("/leaderboard/{board}/around", { path: league, query: { limit: 5 } })).items)
  } catch (refusal) {
    if (refusal.code !== "leaderboard/entry_not_found") throw refusal
    $("around").replaceChildren(h("tr", {}, h("td", {}, "Play a game to enter the league.")))
  }
  const facts = { Rank: mine ? `#${mine.rank} of ${mine.total}` : "–", Tier: mine?.entry.tier ?? "–", Level: rating.level ?? "–", XP: rating.xp }
  $("standing").replaceChildren(...Object.entries(facts).map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, String(value)))))
  plot(health["leaderboard.scores.league"], mine?.entry.score)
}

function rows(id, items) {
  $(id).replaceChildren(...items.map((item) =>
    h(`tr${item.userId === me ? ".me" : ""}`, {}, h("td", {}, String(item.rank)), h("td", {}, item.userId), h("td", {}, item.score.toLocaleString()))))
}

// plot draws one bar for each bucket; the player's own is golden.
function plot({ from, entries }, mine) {
  const shape = (name, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name)
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
    element.textContent = text
    return element
  }
  const most = Math.max(...entries, 1), w = 640 / Math.max(entries.length, 1)
  $("plot").replaceChildren(...entries.flatMap((n, i) => {
    const tall = n === 0 ? 0 : Math.max(3, (150 * n) / most)
    const here = mine !== undefined && from[i] <= mine && (i + 1 === from.length || mine < from[i + 1])
    const bar = shape("rect", { x: i * w + 1.5, y: 160 - tall, width: Math.max(w - 3, 1), height: tall, rx: 3, class: here ? "here" : "bar" })
    const label = i % 5 ? [] : [shape("text", { x: i * w + 2, y: 176 }, from[i].toLocaleString())]
    return [bar, ...label]
  }))
}

// A table.

let table = null

async function sit(id, game) {
  table?.leave()
  table = new Seat(id, game)
  stored.set("session", id)
  stored.set("game", game)
  show("table")
}

class Seat {
  constructor(id, game) {
    Object.assign(this, { game, live: true, sending: 0 })
    $("title").textContent = games[game].title
    $("felt").className = `felt${game === "eights" ? " plum" : ""}`
    for (const part of ["felt", "actions"]) $(part).replaceChildren()
    $("over").hidden = true
    $("fair").open = false
    $("status").textContent = "Coming to the table…"
    $("away").textContent = ""
    this.board = new games[game].Table($("felt"), (data) => this.act(data))
    this.session = kit.session(id, {
      onView: (view) => this.show(view),
      onState: (state, code) => this.state(state, code),
      onEnd: () => this.end(),
      onError: (error) => toast(error.message),
    })
    this.looking = setInterval(() => this.look(), 5000)
    this.ticking = setInterval(() => this.tick(), 250)
  }

  leave() {
    this.session.stop()
    clearInterval(this.ticking)
    clearInterval(this.looking)
    if (table === this) table = null
  }

  // act sends an action until it is acknowledged.
  async act(data) {
    this.sending++
    this.words()
    try {
      await this.session.act(data)
    } catch (refusal) {
      if (table === this) toast(refusal.message) // otherwise the player has left the table
    }
    this.sending--
    if (table === this) this.words()
  }

  // words describes the connection, and reports actions that are not acknowledged yet.
  words() {
    $("line").className = `line ${this.line ?? ""}`
    $("line").textContent = this.line === "open" && this.sending ? "sending…" : { open: "connected", lost: "reconnecting…" }[this.line] ?? ""
  }

  // look shows which other players are not connected.
  async look() {
    const { view } = this.session
    if (!this.live || view?.phase !== "active" || document.visibilityState !== "visible") return
    try {
      const { online } = await kit.get("/arcade/online/{id}", { path: { id: view.id } })
      const away = view.players.filter((name) => name !== me && !online.includes(name))
      $("away").textContent = away.length ? `${away.join(", ")} ${away.length > 1 ? "are" : "is"} disconnected` : ""
    } catch { /* the line's own state says enough */ }
  }

  state(state, code) {
    this.line = state
    this.words()
    if (state === "ended" && code !== 1000) {
      if (code === 4003) this.forget()
      toast({ 4001: "Sign in again to play on.", 4010: "You opened this game too often elsewhere." }[code] ?? "You are no longer at this table.")
      lobby()
    } else if (state === "lost") {
      // A page cannot see why a handshake was refused; the route returns the reason.
      kit.get("/multiplayer/sessions/{id}", { path: { id: this.session.id } }).catch((refusal) => {
        if (!["multiplayer/session_not_found", "multiplayer/not_a_member"].includes(refusal.code) || table !== this) return
        this.forget()
        toast(refusal.message)
        lobby()
      })
    }
  }

  forget() {
    for (const key of ["session", "game", "code"]) stored.set(key, null)
  }

  show(view) {
    // Only the commitment published before the first draw counts.
    const key = `commit.${view.id}`
    if (!stored.get(key)) stored.set(key, view.fairness.seedHash)
    this.committed = stored.get(key)
    if (view.phase === "open") this.waiting(view)
    else if (view.phase !== "abandoned" || view.state) {
      if (this.invited) { this.invited = false; this.board = new games[this.game].Table($("felt"), this.board.act) }
      this.board.update(view)
      $("title").replaceChildren(games[this.game].title, h("small", {}, this.board.subtitle(view)))
    }
    if (view.phase !== this.phase) attempt(purse)()
    this.phase = view.phase
    $("status").className = `status${this.board.mine ? " yours" : ""}`
    $("status").textContent = view.phase === "open" ? "Waiting for players" : this.board.status(view)
    $("actions").replaceChildren(...this.board.actions(), ...this.tableActions(view))
    document.title = this.board.mine ? "● Your turn · Arcade" : "Arcade"
    this.fairness(view)
    this.tick()
  }

  tableActions(view) {
    if (view.mode !== "table" && view.phase !== "open" || ["resolved", "abandoned"].includes(view.phase)) return []
    const act = (label, work) => h("button.quiet", { type: "button", "data-key": label, onclick: attempt(work) }, label)
    const gone = async () => { this.forget(); await lobby() }
    if (view.mode !== "table") return []
    const seat = act("Leave the table", async () => { await kit.post("/multiplayer/sessions/{id}/leave", undefined, { path: { id: view.id } }); await gone() })
    return [seat]
  }

  waiting(view) {
    this.invited = true
    const code = stored.get("code")
    $("felt").replaceChildren(h("div.waiting", {},
      h("div.chairs", {}, Array.from({ length: view.seats }, (_, i) => h(`span.chair${view.players[i] ? ".taken" : ""}`, {}, view.players[i] ?? "empty"))),
      code ? h("p", {}, "Share this code", h("button.code", { type: "button", id: "share", onclick: async () => { await navigator.clipboard?.writeText(code); toast("Copied", "news") } }, code)) : null,
      h("p.dim", {}, view.mode === "table" ? "The game begins with two; more may sit down later." : "The game begins when both are here.")))
  }

  // tick updates the countdown of the turn, by the server's time.
  tick() {
    const view = this.session.view
    $("clock").hidden = !(view?.phase === "active" && view.turnDeadline)
    if ($("clock").hidden) return
    const left = Date.parse(view.turnDeadline) - Date.now() - this.session.skew
    this.whole = Math.max(this.whole ?? 0, left)
    if (this.version !== view.version) [this.version, this.whole] = [view.version, Math.max(left, 1)]
    $("clock").classList.toggle("short", left < 15_000)
    $("clock").firstElementChild.style.width = `${Math.max(0, (94 * left) / this.whole)}%`
    $("clock").lastElementChild.textContent = `${Math.max(0, Math.ceil(left / 1000))} s`
  }

  fairness(view) {
    const { seedHash: hash, cursor } = view.fairness
    $("fair").querySelector("summary").textContent = `Fair play · the seed is sealed under ${hash.slice(0, 8)}…`
    $("fair").querySelector("p").textContent = `SHA-256 of the seed: ${hash}. ${cursor} random numbers drawn so far. The seed is revealed when the game is over, and this page draws them again.`
  }

  async end() {
    const view = this.session.view
    this.live = false
    $("away").textContent = ""
    this.forget()
    document.title = "Arcade"
    const proof = await this.prove(view)
    const place = view.result.ranks?.[me]
    const firsts = Object.values(view.result.ranks ?? {}).filter((n) => n === 1).length
    const verdict = view.phase === "abandoned" ? "over" : place === undefined ? "over" : place > 1 ? "lost" : firsts > 1 ? "drawn" : "won"
    const words = { won: "You won", lost: "You lost", drawn: "A draw", over: view.phase === "abandoned" ? "Nobody moved in time" : "The table is closed" }
    const { lines, coins } = view.phase === "resolved" ? games[this.game].outcome(view) : { lines: ["All stakes go back."], coins: {} }
    const change = view.result.rating?.find((each) => each.userId === me)
    const before = change?.before.rating, after = change?.after.rating
    const gain = (n) => (n > 0 ? "+" : "") + n
    $("status").textContent = words[verdict]
    $("over").className = `over ${verdict}`
    $("over").replaceChildren(h("div.card-like", {},
      h("h2", { id: "verdict" }, words[verdict]),
      ...lines.map((line) => h("p", {}, line)),
      h("div.gains", {},
        coins[verdict] ? h("span.chip", {}, h("i.coin"), h("b", {}, gain(coins[verdict]))) : null,
        after !== undefined ? h("span.chip", {}, h("i.star"), h("b", {}, `${Math.round(after)}`), h("small", {}, gain(Math.round(after) - Math.round(before ?? 1500)))) : null),
      h(`p.proof.${proof.fair ? "good" : "bad"}`, { id: "proof" }, proof.fair ? "✓ Fair: " : "✗ Not fair: ", proof.text),
      h("div.row", {}, h("button.hot", { type: "button", id: "again", onclick: attempt(async () => { await lobby(); await search(this.game) }) }, "Play again"),
        h("button", { type: "button", onclick: () => { $("over").hidden = true; $("fair").open = true } }, "See the table"), h("button.quiet", { type: "button", onclick: lobby }, "Lobby"))))
    $("over").hidden = false
    $("again").focus()
    await purse()
  }

  // prove checks the revealed seed against the commitment, and the game against the seed.
  async prove(view) {
    const { seed, cursor } = view.fairness
    $("fair").querySelector("summary").textContent = "Fair play · the seed is revealed"
    $("fair").querySelector("p").textContent = `Seed ${seed}, SHA-256 ${this.committed}.`
    if (!view.state) return { fair: true, text: "nothing was drawn" }
    try {
      if ((await seedHash(seed)) !== this.committed) throw new Error("the seed is not the one that was sealed")
      const proof = await games[this.game].verify(view)
      if (proof.cursor !== cursor) throw new Error(`${cursor} numbers were drawn, not ${proof.cursor}`)
      return { fair: true, text: proof.text }
    } catch (error) {
      return { fair: false, text: error.message }
    }
  }
}

$("back").onclick = () => lobby()
$("over").onkeydown = (event) => { if (event.key === "Escape") lobby() }
addEventListener("keydown", (event) => {
  const typing = ["INPUT", "TEXTAREA"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey
  if (table?.live && !typing && !$("table").hidden) table.board.key(event)
})

// Decoration, and signing in again.

$("heroart").append(bones.die(5), bones.die(5), bones.die(2))
$("bonesart").append(bones.die(6, "pair"), bones.die(6, "pair"), bones.die(3))
$("eightsart").append(...["8S", "QH", "8D"].map((text) => eights.card(text)))
const name = decodeURIComponent(location.hash.slice(1))
show("signin")
if (name) await attempt(enter)(name)
