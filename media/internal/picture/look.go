package picture

import (
	"image"
	"image/color"
	"math"
	"slices"
	"strings"

	"golang.org/x/image/draw"

	"github.com/kitbackend/kit/internal/lazy"
)

// hashSide is the side of the picture that is hashed.
const hashSide = 32

// Hash returns a 64-bit perceptual hash: the signs of the lowest frequencies. Hashes of pictures
// that look alike differ in few bits. It is 0 for a picture of one color, which has no features to
// compare.
func Hash(img image.Image) uint64 {
	gray := luma(img, hashSide)
	if flat(gray) {
		return 0
	}
	waves := hashCosines.Get(newCosines)
	var low [8][8]float64
	for v := range low {
		for u := range low[v] {
			for y := range hashSide {
				for x := range hashSide {
					low[v][u] += gray[y][x] * waves[u+1][x] * waves[v+1][y]
				}
			}
		}
	}
	values := make([]float64, 0, 64)
	for _, row := range low {
		values = append(values, row[:]...)
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := (sorted[31] + sorted[32]) / 2
	var hash uint64
	for i, v := range values {
		if v > middle {
			hash |= 1 << i
		}
	}
	return hash
}

// cosines are the cosines of the transform used by the hash.
type cosines [9][hashSide]float64

var hashCosines lazy.Value[*cosines]

func newCosines() *cosines {
	waves := new(cosines)
	for u := range waves {
		for x := range waves[u] {
			waves[u][x] = math.Cos(math.Pi * float64(u) * (float64(x) + 0.5) / hashSide)
		}
	}
	return waves
}

// luma scales a picture to a square of brightness values, on white.
func luma(img image.Image, side int) [hashSide][hashSide]float64 {
	small := image.NewRGBA(image.Rect(0, 0, side, side))
	draw.Draw(small, small.Rect, image.White, image.Point{}, draw.Src)
	draw.CatmullRom.Scale(small, small.Rect, img, img.Bounds(), draw.Over, nil)
	var out [hashSide][hashSide]float64
	for y := range side {
		for x := range side {
			out[y][x] = float64(color.GrayModel.Convert(small.At(x, y)).(color.Gray).Y)
		}
	}
	return out
}

// flat reports whether a picture has almost no contrast.
func flat(gray [hashSide][hashSide]float64) bool {
	least, most := gray[0][0], gray[0][0]
	for _, row := range gray {
		least, most = min(least, slices.Min(row[:])), max(most, slices.Max(row[:]))
	}
	return most-least < 8
}

// digits of a BlurHash, in the order of their values.
const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"

// BlurHash returns a placeholder of a picture in the BlurHash format, of four by three components.
func BlurHash(img image.Image) string {
	const across, down, side = 4, 3, hashSide
	small := image.NewRGBA(image.Rect(0, 0, side, side))
	draw.Draw(small, small.Rect, image.White, image.Point{}, draw.Src)
	draw.ApproxBiLinear.Scale(small, small.Rect, img, img.Bounds(), draw.Over, nil)
	var parts [][3]float64
	for j := range down {
		for i := range across {
			parts = append(parts, component(small, i, j))
		}
	}
	largest := 0.0
	for _, part := range parts[1:] {
		largest = max(largest, math.Abs(part[0]), math.Abs(part[1]), math.Abs(part[2]))
	}
	scale := min(82, max(0, int(largest*166-0.5)))
	var b strings.Builder
	write(&b, across-1+(down-1)*9, 1)
	write(&b, scale, 1)
	write(&b, toSRGB(parts[0][0])<<16|toSRGB(parts[0][1])<<8|toSRGB(parts[0][2]), 4)
	for _, part := range parts[1:] {
		value := 0
		for _, v := range part {
			v /= float64(scale+1) / 166
			value = value*19 + min(18, max(0, int(math.Copysign(math.Sqrt(math.Abs(v)), v)*9+9.5)))
		}
		write(&b, value, 2)
	}
	return b.String()
}

func component(img *image.RGBA, i, j int) (sum [3]float64) {
	side := img.Rect.Dx()
	for y := range side {
		for x := range side {
			wave := math.Cos(math.Pi*float64(i*x)/float64(side)) * math.Cos(math.Pi*float64(j*y)/float64(side))
			at := img.PixOffset(x, y)
			for c := range sum {
				sum[c] += wave * toLinear(img.Pix[at+c])
			}
		}
	}
	weight := 1.0
	if i > 0 || j > 0 {
		weight = 2
	}
	for c := range sum {
		sum[c] *= weight / float64(side*side)
	}
	return sum
}

func write(b *strings.Builder, value, length int) {
	for n := length - 1; n >= 0; n-- {
		b.WriteByte(digits[value/int(math.Pow(83, float64(n)))%83])
	}
}

func toLinear(v uint8) float64 {
	s := float64(v) / 255
	if s <= 0.04045 {
		return s / 12.92
	}
	return math.Pow((s+0.055)/1.055, 2.4)
}

func toSRGB(v float64) int {
	v = min(1, max(0, v))
	if v <= 0.0031308 {
		return int(v*12.92*255 + 0.5)
	}
	return int((1.055*math.Pow(v, 1/2.4)-0.055)*255 + 0.5)
}
