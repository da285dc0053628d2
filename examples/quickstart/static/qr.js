// QR codes (ISO/IEC 18004) of text up to 520 bytes: byte mode, error correction
// level L, versions 1 to 15.

const CORRECTION = [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22] // codewords of each block
const BLOCKS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6]

// Arithmetic in GF(256) modulo x^8+x^4+x^3+x^2+1.
const EXP = new Uint8Array(510)
const LOG = new Uint8Array(256)
for (let i = 0, x = 1; i < 255; i++, x = (x << 1) ^ (x & 128 ? 0x11d : 0)) {
	EXP[i] = EXP[i + 255] = x
	LOG[x] = i
}
const times = (a, b) => (a && b ? EXP[LOG[a] + LOG[b]] : 0)

// svg draws the code of a text.
export function svg(text) {
	const rows = matrix(new TextEncoder().encode(text))
	const size = rows.length
	let path = ""
	rows.forEach((row, y) => row.forEach((dark, x) => { if (dark) path += `M${x} ${y}h1v1h-1z` }))
	const create = (name, attributes) => {
		const element = document.createElementNS("http://www.w3.org/2000/svg", name)
		for (const key in attributes) element.setAttribute(key, attributes[key])
		return element
	}
	const image = create("svg", { viewBox: `0 0 ${size} ${size}`, "shape-rendering": "crispEdges" })
	image.append(create("path", { d: path, fill: "#000" }))
	return image
}

// matrix returns rows of modules, true for dark ones.
export function matrix(bytes) {
	const version = smallest(bytes.length)
	const words = interleave(version, dataWords(version, bytes))
	let best, least = Infinity
	for (let mask = 0; mask < 8; mask++) {
		const rows = draw(version, words, mask)
		const penalty = unevenness(rows)
		if (penalty < least) [best, least] = [rows, penalty]
	}
	return best
}

const totalWords = (version) => {
	let modules = (16 * version + 128) * version + 64
	if (version >= 2) {
		const n = Math.floor(version / 7) + 2
		modules -= (25 * n - 10) * n - 55
	}
	return (version >= 7 ? modules - 36 : modules) >> 3
}
const capacity = (version) => totalWords(version) - CORRECTION[version - 1] * BLOCKS[version - 1]

function smallest(length) {
	for (let version = 1; version <= CORRECTION.length; version++)
		if (length + (version < 10 ? 2 : 3) <= capacity(version)) return version
	throw new RangeError("too long for a QR code")
}

function dataWords(version, bytes) {
	const bits = []
	const put = (value, n) => { for (let i = n - 1; i >= 0; i--) bits.push((value >> i) & 1) }
	put(4, 4)
	put(bytes.length, version < 10 ? 8 : 16)
	bytes.forEach((b) => put(b, 8))
	put(0, Math.min(4, capacity(version) * 8 - bits.length))
	while (bits.length % 8) bits.push(0)
	const words = []
	for (let i = 0; i < bits.length; i += 8) words.push(parseInt(bits.slice(i, i + 8).join(""), 2))
	for (let pad = 0xec; words.length < capacity(version); pad ^= 0xec ^ 0x11) words.push(pad)
	return words
}

// interleave splits the words into blocks, adds the correction of each, and takes
// one word of each in turn.
function interleave(version, words) {
	const count = BLOCKS[version - 1], degree = CORRECTION[version - 1]
	const short = Math.floor(words.length / count), long = words.length % count
	const generator = divisor(degree)
	const data = [], correction = []
	for (let i = 0, at = 0; i < count; i++) {
		const block = words.slice(at, (at += short + (i >= count - long ? 1 : 0)))
		data.push(block)
		correction.push(remainder(block, generator))
	}
	const turns = (blocks, length) => Array.from({ length }, (_, i) => blocks.map((b) => b[i])).flat().filter((w) => w !== undefined)
	return [...turns(data, short + 1), ...turns(correction, degree)]
}

function divisor(degree) {
	let product = [...Array(degree - 1).fill(0), 1]
	for (let i = 0, root = 1; i < degree; i++, root = times(root, 2))
		product = product.map((c, j) => times(c, root) ^ (product[j + 1] ?? 0))
	return product
}

function remainder(words, generator) {
	const rest = Array(generator.length).fill(0)
	for (const word of words) {
		const factor = word ^ rest.shift()
		rest.push(0)
		generator.forEach((c, i) => { rest[i] ^= times(c, factor) })
	}
	return rest
}

const MASKS = [
	(x, y) => (x + y) % 2, (x, y) => y % 2, (x) => x % 3, (x, y) => (x + y) % 3,
	(x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2, (x, y) => ((x * y) % 2) + ((x * y) % 3),
	(x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2, (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2,
]

function draw(version, words, mask) {
	const size = version * 4 + 17
	const rows = Array.from({ length: size }, () => Array(size)) // undefined: free for data
	const set = (x, y, dark) => { if (x >= 0 && y >= 0 && x < size && y < size) rows[y][x] = !!dark }
	const square = (cx, cy, reach, dark) => {
		for (let dy = -reach; dy <= reach; dy++)
			for (let dx = -reach; dx <= reach; dx++) set(cx + dx, cy + dy, dark(Math.max(Math.abs(dx), Math.abs(dy))))
	}
	for (let i = 0; i < size; i++) { set(6, i, i % 2 === 0); set(i, 6, i % 2 === 0) }
	for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) square(x, y, 4, (d) => d !== 2 && d !== 4)
	const centres = alignment(version, size)
	for (const x of centres) for (const y of centres) {
		const atFinder = (x === 6 && y === 6) || (x === 6 && y === size - 7) || (x === size - 7 && y === 6)
		if (!atFinder) square(x, y, 2, (d) => d !== 1)
	}
	drawFormat(set, size, mask)
	if (version >= 7) drawVersion(set, size, version)
	fill(rows, size, words, MASKS[mask])
	return rows
}

function alignment(version, size) {
	if (version === 1) return []
	const n = Math.floor(version / 7) + 2
	const step = Math.ceil((version * 4 + 4) / (n * 2 - 2)) * 2
	return [6, ...Array.from({ length: n - 1 }, (_, i) => size - 7 - (n - 2 - i) * step)]
}

function drawFormat(set, size, mask) {
	const data = (1 << 3) | mask // 1 is level L
	let rest = data
	for (let i = 0; i < 10; i++) rest = (rest << 1) ^ ((rest >> 9) * 0x537)
	const bits = ((data << 10) | rest) ^ 0x5412
	const bit = (i) => (bits >> i) & 1
	for (let i = 0; i < 6; i++) set(8, i, bit(i))
	set(8, 7, bit(6)); set(8, 8, bit(7)); set(7, 8, bit(8))
	for (let i = 9; i < 15; i++) set(14 - i, 8, bit(i))
	for (let i = 0; i < 8; i++) set(size - 1 - i, 8, bit(i))
	for (let i = 8; i < 15; i++) set(8, size - 15 + i, bit(i))
	set(8, size - 8, 1)
}

function drawVersion(set, size, version) {
	let rest = version
	for (let i = 0; i < 12; i++) rest = (rest << 1) ^ ((rest >> 11) * 0x1f25)
	const bits = (version << 12) | rest
	for (let i = 0; i < 18; i++) {
		const a = size - 11 + (i % 3), b = Math.floor(i / 3)
		set(a, b, (bits >> i) & 1)
		set(b, a, (bits >> i) & 1)
	}
}

// fill winds through the free modules, two columns at a time.
function fill(rows, size, words, mask) {
	let i = 0
	for (let right = size - 1; right >= 1; right -= 2) {
		if (right === 6) right = 5
		for (let step = 0; step < size; step++) {
			const y = ((right + 1) & 2) === 0 ? size - 1 - step : step
			for (const x of [right, right - 1]) {
				if (rows[y][x] !== undefined) continue
				const bit = i < words.length * 8 ? (words[i >> 3] >> (7 - (i & 7))) & 1 : 0
				rows[y][x] = !!bit !== (mask(x, y) === 0)
				i++
			}
		}
	}
}

// unevenness counts patterns that are hard to scan: long runs, squares and too much of one
// color.
function unevenness(rows) {
	const size = rows.length
	let penalty = 0, dark = 0
	for (const at of [(a, b) => rows[a][b], (a, b) => rows[b][a]])
		for (let a = 0; a < size; a++)
			for (let b = 1, run = 1; b <= size; b++) {
				if (b < size && at(a, b) === at(a, b - 1)) { run++; continue }
				if (run >= 5) penalty += run - 2
				run = 1
			}
	for (let y = 0; y < size; y++)
		for (let x = 0; x < size; x++) {
			if (rows[y][x]) dark++
			if (y && x && rows[y][x] === rows[y - 1][x] && rows[y][x] === rows[y][x - 1] && rows[y][x] === rows[y - 1][x - 1]) penalty += 3
		}
	return penalty + Math.floor(Math.abs((dark * 20) / (size * size) - 10)) * 10
}
