// The random stream of a session, which anyone can recompute once the seed is revealed.
// Block i is HMAC-SHA256(seed, "kit/rng/v1" || i as 8 bytes); word c is the top
// 53 bits of the (c mod 4)th 64-bit integer of block c/4.
const span = 2 ** 53

export class Stream {
  cursor = 0

  static async of(seed) {
    const stream = new Stream()
    stream.key = await crypto.subtle.importKey("raw", bytes(seed), { name: "HMAC", hash: "SHA-256" }, false, ["sign"])
    return stream
  }

  async word() {
    const number = Math.floor(this.cursor / 4), at = (this.cursor++ % 4) * 8
    if (number !== this.number) {
      const message = new Uint8Array(18)
      message.set(new TextEncoder().encode("kit/rng/v1"))
      new DataView(message.buffer).setUint32(14, number)
      this.block = new DataView(await crypto.subtle.sign("HMAC", this.key, message))
      this.number = number
    }
    return this.block.getUint32(at) * 2 ** 21 + (this.block.getUint32(at + 4) >>> 11)
  }

  async next() { return (await this.word()) / span }

  // int draws from least to most, inclusive; words of an incomplete last
  // round are drawn again, so every number is equally likely.
  async int(least, most) {
    const n = most - least + 1, limit = span - (span % n)
    for (;;) {
      const word = await this.word()
      if (word < limit) return least + (word % n)
    }
  }

  async shuffle(items) {
    for (let i = items.length - 1; i > 0; i--) {
      const j = await this.int(0, i)
      ;[items[i], items[j]] = [items[j], items[i]]
    }
    return items
  }
}

const bytes = (hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16))

export async function seedHash(seed) {
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes(seed)))
  return Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("")
}
