// Package mp4 reads the metadata of an MP4 or QuickTime file, without decoding anything: it reads a
// bounded number of bytes, whatever the file declares.
package mp4

import (
	"encoding/binary"
	"errors"
	"math"
)

// The bounds of reading.
const (
	maxTop   = 64       // boxes at the top of the file
	maxMoov  = 16 << 20 // bytes of the movie box
	maxTrack = 32
	maxDepth = 8
)

// Errors of Read.
var (
	ErrCorrupt  = errors.New("mp4: not a whole file")
	ErrTooLarge = errors.New("mp4: the movie box is too large")
)

// Info is the metadata of a file.
type Info struct {
	DurationMs int64
	// Width and Height are the displayed ones: if the track is rotated by a quarter turn, they are
	// exchanged.
	Width, Height int
	// Codec is the four-letter code of the video format, or of the audio format in a file without
	// video.
	Codec     string
	FrameRate float64
	HasVideo  bool
	HasAudio  bool
}

// Source reads length bytes at an offset; it returns an error if there are fewer.
type Source func(offset, length int64) ([]byte, error)

// Read finds and reads the movie box of a file of this size. It returns errors of source unchanged.
func Read(source Source, size int64) (Info, error) {
	at := int64(0)
	for range maxTop {
		if at+8 > size {
			return Info{}, ErrCorrupt
		}
		head, err := source(at, min(16, size-at))
		if err != nil {
			return Info{}, err
		}
		name, skip, length, ok := header(head, size-at)
		if !ok {
			return Info{}, ErrCorrupt
		}
		if name == "moov" {
			if length > maxMoov {
				return Info{}, ErrTooLarge
			}
			moov, err := source(at+skip, length-skip)
			if err != nil {
				return Info{}, err
			}
			return movie(moov)
		}
		at += length
	}
	return Info{}, ErrCorrupt
}

// header returns the name of a box, the size of its header and its whole length.
func header(b []byte, left int64) (name string, skip, length int64, ok bool) {
	if len(b) < 8 {
		return "", 0, 0, false
	}
	skip, length = 8, int64(binary.BigEndian.Uint32(b))
	switch {
	case length == 0:
		length = left
	case length == 1:
		if len(b) < 16 || binary.BigEndian.Uint64(b[8:]) > math.MaxInt64 {
			return "", 0, 0, false
		}
		skip, length = 16, int64(binary.BigEndian.Uint64(b[8:]))
	}
	return string(b[4:8]), skip, length, length >= skip && length <= left
}

// each calls fn for the boxes in b, until an incomplete one.
func each(b []byte, fn func(name string, body []byte)) {
	for len(b) >= 8 {
		name, skip, length, ok := header(b, int64(len(b)))
		if !ok {
			return
		}
		fn(name, b[skip:length])
		b = b[length:]
	}
}

// track is the metadata of one track.
type track struct {
	kind          string
	codec         string
	width, height int
	turned        bool
	scale         int64
	duration      int64
	samples       int64
}

func movie(moov []byte) (info Info, err error) {
	found, tracks := false, 0
	each(moov, func(name string, body []byte) {
		switch name {
		case "mvhd":
			if scale, duration, ok := times(body); ok {
				found, info.DurationMs = true, milliseconds(duration, scale)
			}
		case "trak":
			if tracks++; tracks > maxTrack {
				return
			}
			var t track
			t.read(body, 0)
			info.add(t)
		}
	})
	if !found {
		return Info{}, ErrCorrupt
	}
	return info, nil
}

func (info *Info) add(t track) {
	switch {
	case t.kind == "soun":
		info.HasAudio = true
		if info.Codec == "" {
			info.Codec = t.codec
		}
	case t.kind == "vide" && !info.HasVideo:
		info.HasVideo, info.Codec = true, t.codec
		info.Width, info.Height = t.width, t.height
		if t.turned {
			info.Width, info.Height = t.height, t.width
		}
		if t.duration > 0 && t.scale > 0 {
			info.FrameRate = math.Round(float64(t.samples)*float64(t.scale)/float64(t.duration)*1000) / 1000
		}
	}
}

func (t *track) read(b []byte, depth int) {
	if depth > maxDepth {
		return
	}
	each(b, func(name string, body []byte) {
		switch name {
		case "mdia", "minf", "stbl":
			t.read(body, depth+1)
		case "tkhd":
			t.shown(body)
		case "mdhd":
			t.scale, t.duration, _ = times(body)
		case "hdlr":
			if len(body) >= 12 && depth == 1 { // nested deeper, QuickTime has data handlers
				t.kind = printable(body[8:12])
			}
		case "stsd":
			if len(body) >= 16 {
				t.codec = printable(body[12:16])
			}
		case "stts":
			t.count(body)
		}
	})
}

// shown reads the size of a track and whether it is rotated by a quarter turn.
func (t *track) shown(body []byte) {
	matrix := 40
	if len(body) > 0 && body[0] == 1 {
		matrix = 52
	}
	if len(body) < matrix+44 {
		return
	}
	word := func(at int) int32 { return int32(binary.BigEndian.Uint32(body[at:])) }
	t.turned = word(matrix) == 0 && word(matrix+4) != 0
	t.width, t.height = int(uint32(word(matrix+36))>>16), int(uint32(word(matrix+40))>>16)
}

// count adds the samples.
func (t *track) count(body []byte) {
	for at := 8; at+8 <= len(body); at += 8 {
		t.samples += int64(binary.BigEndian.Uint32(body[at:]))
	}
}

// times reads the time scale and the duration of a header box of either version.
func times(body []byte) (scale, duration int64, ok bool) {
	switch {
	case len(body) >= 20 && body[0] == 0:
		return int64(binary.BigEndian.Uint32(body[12:])), int64(binary.BigEndian.Uint32(body[16:])), true
	case len(body) >= 32 && body[0] == 1 && binary.BigEndian.Uint64(body[24:]) < 1<<52:
		return int64(binary.BigEndian.Uint32(body[20:])), int64(binary.BigEndian.Uint64(body[24:])), true
	default:
		return 0, 0, false
	}
}

func milliseconds(duration, scale int64) int64 {
	if scale == 0 {
		return 0
	}
	return int64(math.Round(float64(duration) / float64(scale) * 1000))
}

// printable returns a name from the file, or "" if it is not printable ASCII.
func printable(b []byte) string {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return ""
		}
	}
	return string(b)
}

// StartsFast reports whether the movie box precedes the contents, so that the file plays while it
// loads.
func StartsFast(source Source, size int64) bool {
	at := int64(0)
	for range maxTop {
		if at+8 > size {
			return false
		}
		head, err := source(at, min(16, size-at))
		if err != nil {
			return false
		}
		name, _, length, ok := header(head, size-at)
		if !ok || name == "mdat" {
			return false
		}
		if name == "moov" {
			return true
		}
		at += length
	}
	return false
}
