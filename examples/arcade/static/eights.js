// Eights: follow the suit or the rank, or play an eight and name the suit.
import { h, keepFocus } from "./dom.js"
import { Stream } from "./fair.js"

export const title = "Crazy Eights"

const glyph = { C: "♣", D: "♦", H: "♥", S: "♠" }
const suitName = { C: "clubs", D: "diamonds", H: "hearts", S: "spades" }
const rankName = { A: "ace", T: "10", J: "jack", Q: "queen", K: "king" }
const order = (card) => "CDSH".indexOf(card[1]) * 13 + "A23456789TJQK".indexOf(card[0])
const spoken = (card) => `${rankName[card[0]] ?? card[0]} of ${suitName[card[1]]}`

export function card(text, tag = "div", props = {}, ...classes) {
  const rank = text[0] === "T" ? "10" : text[0]
  const role = tag === "div" ? { role: "img" } : {}
  return h([`${tag}.card`, "DH".includes(text[1]) ? "red" : "black", ...classes].join("."), { "aria-label": spoken(text), ...role, ...props },
    h("span.corner", { "data-rank": rank, "data-suit": glyph[text[1]] }), h("span.face", { "data-suit": glyph[text[1]] }))
}
const back = (...classes) => h(["div.card.back", ...classes].join("."))

export class Table {
  constructor(root, act) {
    this.act = act
    this.root = h("div.cards")
    root.replaceChildren(this.root)
  }

  get mine() { return this.view?.phase === "active" && this.view.state.turn === this.view.you }

  fits(text) {
    const { top, suit } = this.view.state
    return text[0] === "8" || text[0] === top[0] || text[1] === suit
  }

  play(text) {
    if (!this.mine || !this.fits(text)) return
    if (text[0] !== "8") return this.act({ play: text })
    this.naming = text
    this.render()
    this.root.querySelector(".suits button")?.focus()
  }

  name(suit) {
    this.act({ play: this.naming, suit })
    this.naming = null
    this.render()
  }

  key(event) {
    if (event.key === "Escape" && this.naming) { this.naming = null; this.render(); return }
    if (this.naming) { const suit = event.key.toUpperCase(); if (suit in glyph) this.name(suit); return }
    if (event.key === "d" && this.mine) this.draw()
    if (event.key === "p" && this.mine) this.pass()
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return
    const hand = [...this.root.querySelectorAll(".hand button")]
    const at = hand.indexOf(document.activeElement)
    hand.at((at + (event.key === "ArrowRight" ? 1 : hand.length - 1)) % hand.length)?.focus()
    event.preventDefault()
  }

  canDraw() { return this.mine && !this.view.state.drew && this.view.state.deck > 0 }
  canPass() { return this.mine && (this.view.state.drew || this.view.state.deck === 0) }
  draw() { if (this.canDraw()) this.act({ draw: true }) }
  pass() { if (this.canPass()) this.act({ pass: true }) }

  update(view) {
    this.view = view
    if (!this.mine) this.naming = null
    this.render()
  }

  render() {
    const { state, players, you, phase } = this.view
    if (!state) return
    keepFocus(this.root, () => {
      const others = [...players, ...players].slice(players.indexOf(you) + 1, players.indexOf(you) + players.length)
      this.root.replaceChildren(
        h("div.seats", {}, others.map((name) => this.seat(name))),
        h("div.middle", {},
          h("button.pile", { type: "button", "data-key": "deck", disabled: !this.canDraw(), "aria-label": `Draw, ${state.deck} left`, onclick: () => this.draw() }, state.deck ? back() : h("div.card.none"), h("small", {}, `${state.deck} left`)),
          h("div.pile", {}, card(state.top, "div", {}, state.last?.did === "played" ? "drop" : "still"), h("small", {}, "follow ", h(`b.${"DH".includes(state.suit) ? "red" : "black"}`, {}, `${glyph[state.suit]} ${suitName[state.suit]}`)))),
        this.naming ? this.suits() : h("div.hand", { role: "group", "aria-label": "Your hand" }, [...state.hand].sort((a, b) => order(a) - order(b)).map((text) =>
          card(text, "button", { type: "button", "data-key": text, disabled: phase !== "active", "aria-disabled": `${!(this.mine && this.fits(text))}`, onclick: () => this.play(text) }, this.mine && this.fits(text) ? "fits" : "rests"))))
    })
  }

  seat(name) {
    const { state, phase } = this.view
    const count = state.counts[name] ?? 0
    const cards = state.hands ? (state.hands[name] ?? []).map((text) => card(text, "div", {}, "small")) : Array.from({ length: Math.min(count, 12) }, () => back("small"))
    const said = state.last?.player === name ? { played: "played", drew: "drew a card", passed: "passed", joined: "sat down" }[state.last.did] : ""
    return h(`section.seat${phase === "active" && state.turn === name ? ".turn" : ""}`, {},
      h("h2", {}, name, h("small", {}, ` ${count} card${count === 1 ? "" : "s"}`)), h("div.fan", {}, cards), h("p.said", {}, said ?? ""))
  }

  suits() {
    return h("div.suits", { role: "group", "aria-label": "Name a suit" }, h("p", {}, "Name a suit for the eight"),
      Object.keys(glyph).map((suit) => h(`button.suit.${"DH".includes(suit) ? "red" : "black"}`, { type: "button", "aria-label": suitName[suit], onclick: () => this.name(suit) }, glyph[suit])),
      h("button.quiet", { type: "button", onclick: () => { this.naming = null; this.render() } }, "Back"))
  }

  status(view) {
    const { state } = view
    if (view.phase !== "active") return ""
    if (!this.mine) return `${state.turn} is to play`
    if (state.hand.some((text) => this.fits(text))) return "Your turn: play a card"
    return this.canDraw() ? "Your turn: nothing fits, draw a card" : "Your turn: nothing fits, pass"
  }

  subtitle(view) { return `${view.players.length} of ${view.seats} seats` }

  actions() {
    if (this.view?.phase !== "active") return []
    return [
      h("button.hot", { type: "button", "data-key": "draw", disabled: !this.canDraw(), onclick: () => this.draw() }, "Draw", h("kbd", {}, "D")),
      h("button", { type: "button", "data-key": "pass", disabled: !this.canPass(), onclick: () => this.pass() }, "Pass", h("kbd", {}, "P")),
    ]
  }
}

export const outcome = (view) => {
  const points = view.result.detail?.points ?? {}
  return { lines: Object.entries(points).sort((a, b) => a[1] - b[1]).map(([name, n]) => `${name}: ${n} point${n === 1 ? "" : "s"} in hand`), coins: { won: 0, lost: 0, drawn: 0 } }
}

// verify shuffles the deck again.
export async function verify(view) {
  const stream = await Stream.of(view.fairness.seed)
  const deck = [..."CDHS"].flatMap((suit) => [..."A23456789TJQK"].map((rank) => rank + suit))
  await stream.shuffle(deck)
  if (deck.join() !== view.state.start.join()) throw new Error("the deck is not the stream's")
  return { cursor: stream.cursor, text: "52 cards shuffled again from the seed: the same deck" }
}
