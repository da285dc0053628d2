// Bones: place your die in a column; equal dice multiply, and remove those of the opponent.
import { h } from "./dom.js"
import { Stream } from "./fair.js"

export const title = "Bones"

const pips = { 1: [4], 2: [0, 8], 3: [0, 4, 8], 4: [0, 2, 6, 8], 5: [0, 2, 4, 6, 8], 6: [0, 2, 3, 5, 6, 8] }

export const die = (n, ...classes) =>
  h(["span.die", ...classes].join("."), { role: "img", "aria-label": `${n}` }, Array.from({ length: 9 }, (_, i) => h(pips[n].includes(i) ? "i.pip" : "i")))

export class Table {
  constructor(root, act) {
    this.act = act
    this.sides = ["theirs", "mine"].map((whose) => this.side(whose))
    this.root = h("div.duel", {}, this.sides.map((side) => side.root))
    root.replaceChildren(this.root)
  }

  side(whose) {
    const columns = [0, 1, 2].map((i) =>
      whose === "mine"
        ? h("button.column", { type: "button", "data-key": `column-${i}`, onclick: () => this.place(i), onmouseenter: () => this.threaten(i), onmouseleave: () => this.threaten(null), onfocus: () => this.threaten(i), onblur: () => this.threaten(null) })
        : h("div.column"))
    const side = { columns, name: h("h2"), score: h("b.score"), tray: h("div.tray") }
    side.root = h(`section.side.${whose}`, {}, h("div.who", {}, side.name, side.score), h("div.columns", {}, columns), side.tray)
    return side
  }

  get mine() { return this.view?.state && this.view.phase === "active" && this.view.players[this.view.state.turn] === this.view.you }

  place(column) {
    if (this.mine) this.act({ place: column })
  }

  key(event) {
    if ("123".includes(event.key)) this.place(Number(event.key) - 1)
  }

  // threaten shows which dice the current one would remove.
  threaten(column) {
    const n = this.mine && column !== null ? this.view.state.rolls.at(-1) : 0
    this.sides[0].columns.forEach((element, i) => {
      for (const each of element.querySelectorAll(".die")) each.classList.toggle("threat", i === column && each.getAttribute("aria-label") === `${n}`)
    })
  }

  update(view) {
    const before = this.view
    this.view = view
    const state = view.state
    if (!state) return
    const me = view.players.indexOf(view.you)
    const fresh = before?.state && before.version !== view.version
    const open = view.phase === "active"
    this.sides.forEach((side, s) => {
      const player = s === 1 ? me : 1 - me
      const turn = open && state.turn === player
      side.root.classList.toggle("turn", turn)
      side.name.textContent = s === 1 ? "You" : view.players[player]
      side.score.textContent = state.scores[player]
      const shown = `${turn} ${state.rolls.length}`
      if (side.shown !== shown) side.tray.replaceChildren(...(turn ? [die(state.rolls.at(-1), "held", "roll"), h("span", {}, s === 1 ? "keys 1 2 3" : "thinking…")] : []))
      side.shown = shown
      side.columns.forEach((column, i) => {
        const dice = state.boards[player][i]
        const had = before?.state?.boards[player][i] ?? []
        const count = (n) => dice.filter((other) => other === n).length
        const last = state.last && state.last.player === player && state.last.column === i
        column.replaceChildren(
          ...dice.map((n, at) => die(n, ["", "single", "pair", "triple"][count(n)], ...(fresh && last && at === dice.length - 1 ? ["drop"] : []))),
          ...(fresh && had.length > dice.length ? Array.from({ length: had.length - dice.length }, () => h("span.hole.gone")) : []),
          ...Array.from({ length: Math.max(0, 3 - Math.max(dice.length, fresh ? had.length : 0)) }, () => h("span.hole")),
          h("em.sum", {}, state.sums[player][i] || ""))
        if (s === 1) {
          column.disabled = !turn || dice.length === 3
          column.setAttribute("aria-label", `Column ${i + 1}: ${dice.join(", ") || "empty"}, worth ${state.sums[player][i]}`)
        }
      })
    })
  }

  status(view) {
    const { state } = view
    if (view.phase !== "active") return ""
    return this.mine ? `Your turn: place the ${state.rolls.at(-1)}` : `${view.players[state.turn]} is to place a ${state.rolls.at(-1)}`
  }

  subtitle(view) { return `pot ${2 * view.state.stake}` }

  actions() {
    return this.view?.phase === "active" ? [h("button.quiet", { type: "button", "data-key": "resign", onclick: () => confirm("Give up the stake?") && this.act({ resign: true }) }, "Resign")] : []
  }
}

export const outcome = (view) => {
  const { scores, pot } = view.result.detail
  const me = view.players.indexOf(view.you)
  const lines = [`${scores[me]} to ${scores[1 - me]}`]
  if (view.state.resigned !== undefined && view.state.resigned !== null) lines[0] = view.state.resigned === me ? "You resigned" : `${view.players[1 - me]} resigned`
  return { lines, coins: { won: pot / 2, lost: -pot / 2, drawn: 0 } }
}

// verify rolls all dice again.
export async function verify(view) {
  const stream = await Stream.of(view.fairness.seed)
  const { first, rolls } = view.state
  if ((await stream.int(0, 1)) !== first) throw new Error("another player should have begun")
  for (const [i, roll] of rolls.entries()) {
    if ((await stream.int(1, 6)) !== roll) throw new Error(`die ${i + 1} is not the stream's`)
  }
  return { cursor: stream.cursor, text: `${rolls.length} dice thrown again from the seed: all equal` }
}
