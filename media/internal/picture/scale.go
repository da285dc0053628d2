package picture

import (
	"bytes"
	"image"
	"image/color"
	stddraw "image/draw"
	"image/jpeg"
	"image/png"
	"math"

	"golang.org/x/image/draw"
)

// Target is the size of a smaller picture. The result is never larger than its source.
type Target struct {
	Width, Height int
	// Cover fills the whole target and crops the rest; without it the whole picture fits inside.
	Cover bool
}

// ratio returns how many source pixels correspond to one target pixel, at least 1.
func (t Target) ratio(width, height int) float64 {
	x, y := float64(width)/float64(t.Width), float64(height)/float64(t.Height)
	if t.Cover {
		return max(1, min(x, y))
	}
	return max(1, x, y)
}

// Base shrinks a picture to the size that is sufficient for all targets, upright, so that each
// target is made from it instead of the whole picture.
func Base(img image.Image, orientation int, targets []Target) *image.RGBA {
	width, height := img.Bounds().Dx(), img.Bounds().Dy()
	upright := [2]int{width, height}
	if orientation >= 5 {
		upright = [2]int{height, width}
	}
	ratio := math.Inf(1)
	for _, t := range targets {
		ratio = min(ratio, t.ratio(upright[0], upright[1]))
	}
	if len(targets) == 0 {
		ratio = 1
	}
	return orient(shrink(img, ratio), orientation)
}

// shrink scales a picture down by a ratio: by whole pixels first, which is fast, then by a filter
// that keeps edges.
func shrink(img image.Image, ratio float64) *image.RGBA {
	width, height := size(img.Bounds().Dx(), ratio), size(img.Bounds().Dy(), ratio)
	small := img
	if factor := int(ratio / 1.5); factor > 1 {
		small = box(img, factor)
	}
	if rgba, ok := small.(*image.RGBA); ok && rgba.Bounds().Dx() == width && rgba.Bounds().Dy() == height {
		return rgba
	}
	out := image.NewRGBA(image.Rect(0, 0, width, height))
	if small.Bounds().Dx() == width && small.Bounds().Dy() == height {
		stddraw.Draw(out, out.Bounds(), small, small.Bounds().Min, stddraw.Src)
		return out
	}
	resample(out, small)
	return out
}

// band is how many rows or columns are resampled at a time.
const band = 16

// resample does the work of one CatmullRom.Scale, which would hold 32 bytes for each row of src and
// column of out, in bands: it scales bands of rows to the width of out, then bands of columns to
// its height. Along the side that keeps its length the filter changes nothing, so that no seam is
// visible.
func resample(out *image.RGBA, src image.Image) {
	b, width, height := src.Bounds(), out.Rect.Dx(), out.Rect.Dy()
	wide := image.NewRGBA(image.Rect(0, 0, width, b.Dy()))
	across := draw.CatmullRom.NewScaler(width, band, b.Dx(), band)
	for y := 0; y < b.Dy(); y += band {
		rows := image.Rect(0, y, width, min(y+band, b.Dy()))
		across.Scale(wide, rows, src, image.Rect(b.Min.X, b.Min.Y+rows.Min.Y, b.Max.X, b.Min.Y+rows.Max.Y), draw.Src, nil)
	}
	down := draw.CatmullRom.NewScaler(band, height, band, b.Dy())
	for x := 0; x < width; x += band {
		end := min(x+band, width)
		down.Scale(out, image.Rect(x, 0, end, height), wide, image.Rect(x, 0, end, b.Dy()), draw.Src, nil)
	}
}

// Scratch returns the memory that Base uses in addition to a picture with these sides, in either
// orientation, in units of four bytes.
func Scratch(width, height int, targets []Target) int64 {
	ratio := float64(max(width, height)) / float64(Enough(width, height, targets))
	factor, boxed := float64(max(1, int(ratio/1.5))), 0.0
	if factor > 1 {
		boxed = 1 / (factor * factor)
	}
	return int64(float64(width) * float64(height) * (boxed + 1/(factor*ratio) + 1/(ratio*ratio)))
}

// Enough returns the longer side of the size that is sufficient for all targets, in either
// orientation.
func Enough(width, height int, targets []Target) int {
	ratio := math.Inf(1)
	for _, t := range targets {
		ratio = min(ratio, t.ratio(width, height), t.ratio(height, width))
	}
	return size(max(width, height), ratio)
}

func size(side int, ratio float64) int { return max(1, int(math.Round(float64(side)/ratio))) }

// box averages squares of factor by factor pixels. The squares at the edges may be smaller.
func box(img image.Image, factor int) *image.RGBA {
	if planes, ok := img.(*image.YCbCr); ok {
		return boxYCbCr(planes, factor)
	}
	b := img.Bounds()
	width, height := b.Dx(), b.Dy()
	out := image.NewRGBA(image.Rect(0, 0, (width+factor-1)/factor, (height+factor-1)/factor))
	strip := image.NewRGBA(image.Rect(0, 0, width, factor))
	for y := range out.Rect.Dy() {
		rows := min(factor, height-y*factor)
		stddraw.Draw(strip, image.Rect(0, 0, width, rows), img, image.Pt(b.Min.X, b.Min.Y+y*factor), stddraw.Src)
		for x := range out.Rect.Dx() {
			columns := min(factor, width-x*factor)
			var sum [4]int
			for i := range rows {
				at := strip.PixOffset(x*factor, i)
				for j, v := range strip.Pix[at : at+4*columns] {
					sum[j&3] += int(v)
				}
			}
			n, to := rows*columns, out.PixOffset(x, y)
			for c := range sum {
				out.Pix[to+c] = uint8((sum[c] + n/2) / n)
			}
		}
	}
	return out
}

// boxYCbCr averages in the planes of a JPEG, and converts only the averages.
func boxYCbCr(img *image.YCbCr, factor int) *image.RGBA {
	b := img.Rect
	out := image.NewRGBA(image.Rect(0, 0, (b.Dx()+factor-1)/factor, (b.Dy()+factor-1)/factor))
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			cell := image.Rect(x*factor, y*factor, (x+1)*factor, (y+1)*factor).Add(b.Min).Intersect(b)
			luma := mean(img.Y, img.YStride, img.YOffset(cell.Min.X, cell.Min.Y), cell.Dx(), cell.Dy())
			first, last := img.COffset(cell.Min.X, cell.Min.Y), img.COffset(cell.Max.X-1, cell.Max.Y-1)
			columns := last%img.CStride - first%img.CStride + 1
			rows := last/img.CStride - first/img.CStride + 1
			cb := mean(img.Cb, img.CStride, first, columns, rows)
			cr := mean(img.Cr, img.CStride, first, columns, rows)
			to := out.PixOffset(x, y)
			out.Pix[to], out.Pix[to+1], out.Pix[to+2] = color.YCbCrToRGB(luma, cb, cr)
			out.Pix[to+3] = 0xff
		}
	}
	return out
}

func mean(plane []uint8, stride, at, columns, rows int) uint8 {
	sum := 0
	for range rows {
		for _, v := range plane[at : at+columns] {
			sum += int(v)
		}
		at += stride
	}
	n := columns * rows
	return uint8((sum + n/2) / n)
}

// orient rotates and mirrors a picture by its EXIF orientation, 1 to 8, so that it is upright.
func orient(img *image.RGBA, orientation int) *image.RGBA {
	if orientation < 2 || orientation > 8 {
		return img
	}
	width, height := img.Rect.Dx(), img.Rect.Dy()
	out := image.NewRGBA(image.Rect(0, 0, width, height))
	if orientation >= 5 {
		out = image.NewRGBA(image.Rect(0, 0, height, width))
	}
	for y := range height {
		for x := range width {
			tx, ty := x, y
			switch orientation {
			case 2:
				tx = width - 1 - x
			case 3:
				tx, ty = width-1-x, height-1-y
			case 4:
				ty = height - 1 - y
			case 5:
				tx, ty = y, x
			case 6:
				tx, ty = height-1-y, x
			case 7:
				tx, ty = height-1-y, width-1-x
			case 8:
				tx, ty = y, width-1-x
			}
			copy(out.Pix[out.PixOffset(tx, ty):][:4], img.Pix[img.PixOffset(x, y):][:4])
		}
	}
	return out
}

// Fit makes a target from an upright base.
func Fit(base *image.RGBA, t Target) *image.RGBA {
	small := shrink(base, t.ratio(base.Rect.Dx(), base.Rect.Dy()))
	if !t.Cover {
		return small
	}
	b := small.Rect
	width, height := min(b.Dx(), t.Width), min(b.Dy(), t.Height)
	from := image.Pt((b.Dx()-width)/2, (b.Dy()-height)/2)
	return small.SubImage(image.Rectangle{Min: from, Max: from.Add(image.Pt(width, height))}).(*image.RGBA)
}

// Encode encodes a picture without any metadata: as JPEG, or as PNG if it is not opaque.
func Encode(img *image.RGBA, quality int) (data []byte, contentType string, err error) {
	var buf bytes.Buffer
	if img.Opaque() {
		err = jpeg.Encode(&buf, img, &jpeg.Options{Quality: quality})
		return buf.Bytes(), "image/jpeg", err
	}
	err = png.Encode(&buf, img)
	return buf.Bytes(), "image/png", err
}
