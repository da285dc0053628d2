// Package picture decodes untrusted pictures within bounds, and makes smaller pictures, a
// placeholder and a perceptual hash of them.
package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"runtime/debug"

	"golang.org/x/image/webp"
)

// MaxSide bounds the width and the height of a picture, in pixels.
const MaxSide = 16384

// Errors of Inspect and Decode.
var (
	ErrTooManyPixels = errors.New("picture: too many pixels")
	ErrCorrupt       = errors.New("picture: not a whole picture")
	ErrFormat        = errors.New("picture: no decoder for this format")
)

// Header is what the header of a picture declares, before anything is decoded.
type Header struct {
	// Width and Height are those of the stored pixels, before orientation.
	Width, Height int
	// Weight is the memory that decoding uses, in units of four bytes.
	Weight int64
}

// decoders are the supported decoders, by media type. A decoder is chosen by the sniffed type:
// image.Decode would try every registered format.
var decoders = map[string]struct {
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
}{
	"image/jpeg": {jpeg.DecodeConfig, jpeg.Decode},
	"image/png":  {png.DecodeConfig, png.Decode},
	"image/gif":  {gif.DecodeConfig, gif.Decode}, // decodes the first frame
	"image/webp": {webp.DecodeConfig, webp.Decode},
}

// Decodes reports whether pictures of a type can be decoded.
func Decodes(contentType string) bool { _, ok := decoders[contentType]; return ok }

// Describes reports whether Inspect, Metadata and Clean support a type.
func Describes(contentType string) bool { return Decodes(contentType) || isHEIF(contentType) }

// Inspect reads the header of a picture from its first bytes. It refuses with
// ErrTooManyPixels, ErrCorrupt and ErrFormat.
func Inspect(contentType string, head []byte, maxPixels int64) (h Header, err error) {
	defer contain(&err)
	if h.Width, h.Height, err = dimensions(contentType, head); err != nil {
		return h, err
	}
	if h.Width < 1 || h.Height < 1 {
		return h, ErrCorrupt
	}
	pixels := int64(h.Width) * int64(h.Height)
	if h.Width > MaxSide || h.Height > MaxSide || pixels > maxPixels {
		return h, ErrTooManyPixels
	}
	h.Weight = pixels * perPixel(contentType, head)
	return h, nil
}

func dimensions(contentType string, head []byte) (width, height int, err error) {
	if isHEIF(contentType) {
		width, height = inspectHEIF(head)
		return width, height, nil
	}
	d, ok := decoders[contentType]
	if !ok {
		return 0, 0, ErrFormat
	}
	config, err := d.config(bytes.NewReader(head))
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return config.Width, config.Height, nil
}

// perPixel returns how many units of four bytes a decoder uses per pixel.
func perPixel(contentType string, head []byte) int64 {
	const depth = 24 // offset of the bit depth in a PNG's header
	switch {
	case contentType == "image/png" && len(head) > depth && head[depth] == 16:
		return 2
	case contentType == "image/gif", contentType == "image/webp":
		return 2 // the frame, and the canvas if the frame is a part of it
	case isHEIF(contentType):
		return 4 // decoders outside of this package, at their estimated cost
	case contentType == "image/jpeg" && progressive(head):
		return 4 // coefficients are kept until the last scan
	default:
		return 1
	}
}

// progressive reports whether a JPEG's frame is other than baseline or extended sequential.
func progressive(head []byte) bool {
	found := false
	segments(head, func(marker byte, _ []byte) bool {
		if marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc {
			found = marker != 0xc0 && marker != 0xc1
			return false
		}
		return true
	})
	return found
}

// Decode decodes a picture that Inspect accepted. It returns soon after ctx is done.
func Decode(ctx context.Context, contentType string, data []byte) (img image.Image, err error) {
	defer contain(&err)
	d, ok := decoders[contentType]
	if !ok {
		return nil, ErrFormat
	}
	frame, at := data, image.Point{}
	if contentType == "image/webp" {
		frame, at = firstFrame(data)
	}
	canvas, err := bounds(contentType, data)
	if err != nil {
		return nil, err
	}
	part, err := bounds(contentType, frame)
	if err != nil {
		return nil, err
	}
	if !part.Add(at).In(canvas) { // the declared memory only covers the canvas
		return nil, ErrCorrupt
	}
	if img, err = DecodeWith(ctx, d.decode, frame); err != nil {
		return nil, err
	}
	return onCanvas(img, at, canvas), nil
}

func bounds(contentType string, data []byte) (image.Rectangle, error) {
	width, height, err := dimensions(contentType, data)
	return image.Rect(0, 0, width, height), err
}

// firstFrame returns the first frame of an animated WebP, which the decoder does not support, as a
// file of its own, and its position. It returns a file without frames unchanged.
func firstFrame(data []byte) (file []byte, at image.Point) {
	found := false
	file = data
	riff(data, func(name string, body, _ []byte) {
		const header = 16 // position, size, duration and flags
		if name != "ANMF" || found || len(body) < header {
			return
		}
		found = true
		number := func(at int) int { return int(body[at]) | int(body[at+1])<<8 | int(body[at+2])<<16 }
		at = image.Pt(2*number(0), 2*number(3))
		extended := make([]byte, 10)
		if bytes.HasPrefix(body[header:], []byte("ALPH")) {
			extended[0] = 0x10 // the decoder rejects alpha that was not declared
		}
		copy(extended[4:], body[6:12])
		out := bytes.NewBuffer(make([]byte, 0, len(body)+32))
		out.WriteString("RIFF\x00\x00\x00\x00WEBP")
		writeRIFF(out, "VP8X", extended)
		out.Write(body[header:])
		file = out.Bytes()
		binary.LittleEndian.PutUint32(file[4:], uint32(len(file)-8))
	})
	return file, at
}

// onCanvas returns the whole picture of a frame that may cover a part of it.
func onCanvas(frame image.Image, at image.Point, canvas image.Rectangle) image.Image {
	b := frame.Bounds().Add(at)
	if b == canvas {
		return frame
	}
	out := image.NewRGBA(canvas)
	draw.Draw(out, b, frame, frame.Bounds().Min, draw.Src)
	return out
}

// DecodeWith is Decode with another decoder.
func DecodeWith(ctx context.Context, decode func(io.Reader) (image.Image, error), data []byte) (img image.Image, err error) {
	defer contain(&err)
	img, err = decode(&bounded{ctx, bytes.NewReader(data)})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return img, nil
}

// contain returns a panic of a decoder as ErrCorrupt.
func contain(err *error) {
	if value := recover(); value != nil {
		*err = fmt.Errorf("%w: a decoder panicked: %v\n%s", ErrCorrupt, value, debug.Stack())
	}
}

// bounded is a reader that stops a decoder once ctx is done. Reads are small, so that little work
// is left after one.
type bounded struct {
	ctx context.Context
	r   io.Reader
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}
