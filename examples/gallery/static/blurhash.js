// A placeholder drawn from the BlurHash of a picture, before its thumbnail has loaded.
const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"
const number = (text) => [...text].reduce((n, c) => n * 83 + digits.indexOf(c), 0)
const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
const visible = (v) => Math.round(255 * ((v = Math.min(1, Math.max(0, v))) <= 0.0031308 ? v * 12.92 : 1.055 * v ** (1 / 2.4) - 0.055))
const wave = (v, most) => Math.sign(v - 9) * ((v - 9) / 9) ** 2 * most

export const placeholder = (hash, width = 32, height = 24) => {
  const canvas = Object.assign(document.createElement("canvas"), { width, height })
  if (hash.length < 6) return canvas
  const across = number(hash[0]) % 9 + 1, down = Math.floor(number(hash[0]) / 9) + 1
  const most = (number(hash[1]) + 1) / 166, average = number(hash.slice(2, 6))
  const parts = [[average >> 16, average >> 8 & 255, average & 255].map(linear)]
  for (let i = 1; i < across * down; i++) {
    const v = number(hash.slice(4 + i * 2, 6 + i * 2))
    parts.push([Math.floor(v / 361), Math.floor(v / 19) % 19, v % 19].map((x) => wave(x, most)))
  }
  const image = new ImageData(width, height)
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const sum = [0, 0, 0]
    parts.forEach((part, i) => {
      const basis = Math.cos(Math.PI * x * (i % across) / width) * Math.cos(Math.PI * y * Math.floor(i / across) / height)
      part.forEach((v, c) => { sum[c] += v * basis })
    })
    image.data.set([...sum.map(visible), 255], (y * width + x) * 4)
  }
  canvas.getContext("2d").putImageData(image, 0, 0)
  return canvas
}
