package picture

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"time"
)

// Exif is the data of a picture's EXIF block.
type Exif struct {
	// Orientation is 1 to 8; 1 is upright.
	Orientation int
	// TakenAt is zero if unknown. Without a time zone it is read as UTC.
	TakenAt time.Time
	// Location is nil if unknown.
	Location *Location
}

// Location is a place in degrees.
type Location struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

// The tags that are read.
const (
	tagOrientation   = 0x0112
	tagDateTime      = 0x0132
	tagXMP           = 0x02bc
	tagIPTC          = 0x83bb
	tagPhotoshop     = 0x8649
	tagExif          = 0x8769
	tagGPS           = 0x8825
	tagOriginalTime  = 0x9003
	tagOriginalZone  = 0x9011
	tagLatitudeRef   = 1
	tagLatitude      = 2
	tagLongitudeRef  = 3
	tagLongitude     = 4
	maxEntries       = 512
	entrySize        = 12
	kindASCII        = 2
	kindShort        = 3
	kindLong         = 4
	kindRational     = 5
	kindIFD          = 13 // like kindLong: the offset of a directory
	stampForm        = "2006:01:02 15:04:05"
	stampFormZone    = stampForm + "-07:00"
	maxPlausibleYear = 9999
)

// block is a TIFF structure. Every read is checked against its bytes.
type block struct {
	data  []byte
	order binary.ByteOrder
}

// open reads the byte order and returns the offset of the first directory.
func open(data []byte) (b block, first int, ok bool) {
	if len(data) < 8 {
		return b, 0, false
	}
	switch string(data[:4]) {
	case "II*\x00":
		b = block{data, binary.LittleEndian}
	case "MM\x00*":
		b = block{data, binary.BigEndian}
	default:
		return b, 0, false
	}
	return b, int(b.order.Uint32(data[4:])), true
}

// entry is one value of a directory.
type entry struct {
	tag, kind uint16
	count     uint32
	at        int // offset of the entry
	value     []byte
	outside   int // offset of a value that is not in the entry, else 0
}

// directory returns the entries at an offset, without those that break the bounds.
func (b block) directory(at int) []entry {
	if at < 8 || at+2 > len(b.data) {
		return nil
	}
	n := int(b.order.Uint16(b.data[at:]))
	if n > maxEntries || at+2+n*entrySize > len(b.data) {
		return nil
	}
	list := make([]entry, 0, n)
	for i := range n {
		from := at + 2 + i*entrySize
		raw := b.data[from : from+entrySize]
		e := entry{tag: b.order.Uint16(raw), kind: b.order.Uint16(raw[2:]), count: b.order.Uint32(raw[4:]), at: from}
		width := int64(0)
		if int(e.kind) < len(widths) {
			width = widths[e.kind]
		}
		length := width * int64(e.count)
		switch {
		case length <= 4:
			e.value = raw[8 : 8+length]
		default:
			offset := int64(b.order.Uint32(raw[8:]))
			if length > int64(len(b.data)) || offset+length > int64(len(b.data)) || offset < 8 {
				continue
			}
			e.outside, e.value = int(offset), b.data[offset:offset+length]
		}
		list = append(list, e)
	}
	return list
}

// widths are the sizes of one value in bytes, by kind.
var widths = [...]int64{0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4}

func (b block) number(e entry) int {
	switch {
	case e.kind == kindShort && len(e.value) >= 2:
		return int(b.order.Uint16(e.value))
	case (e.kind == kindLong || e.kind == kindIFD) && len(e.value) >= 4:
		return int(b.order.Uint32(e.value))
	default:
		return 0
	}
}

func text(e entry) string {
	if e.kind != kindASCII || len(e.value) > 64 {
		return ""
	}
	before, _, _ := strings.Cut(string(e.value), "\x00")
	return strings.TrimSpace(before)
}

// degrees reads an angle of three fractions.
func (b block) degrees(e entry) (float64, bool) {
	if e.kind != kindRational || len(e.value) != 24 {
		return 0, false
	}
	angle, unit := 0.0, 1.0
	for i := 0; i < 24; i += 8 {
		over, under := b.order.Uint32(e.value[i:]), b.order.Uint32(e.value[i+4:])
		if under == 0 && over != 0 {
			return 0, false
		}
		angle += float64(over) / float64(max(under, 1)) / unit
		unit *= 60
	}
	return angle, true
}

// ReadExif reads a TIFF structure, which in a picture may follow the name "Exif". It omits fields
// that cannot be read.
func ReadExif(data []byte) Exif {
	out := Exif{Orientation: 1}
	b, first, ok := open(data)
	if !ok {
		return out
	}
	stamp, zone := "", ""
	var place, details bool // each directory is read once, however many entries point to it
	for _, e := range b.directory(first) {
		switch e.tag {
		case tagOrientation:
			if v := b.number(e); v >= 1 && v <= 8 {
				out.Orientation = v
			}
		case tagDateTime:
			if stamp == "" {
				stamp = text(e)
			}
		case tagGPS:
			if !place {
				place, out.Location = true, b.place(b.number(e))
			}
		case tagExif:
			if details {
				continue
			}
			details = true
			for _, e := range b.directory(b.number(e)) {
				switch e.tag {
				case tagOriginalTime:
					stamp = text(e)
				case tagOriginalZone:
					zone = text(e)
				}
			}
		}
	}
	out.TakenAt = instant(stamp, zone)
	return out
}

func instant(stamp, zone string) time.Time {
	at, err := time.Parse(stampFormZone, stamp+zone)
	if err != nil {
		at, err = time.Parse(stampForm, stamp)
	}
	if err != nil || at.Year() < 1800 || at.Year() > maxPlausibleYear {
		return time.Time{}
	}
	return at.UTC()
}

func (b block) place(at int) *Location {
	var l Location
	found, south, west := 0, false, false
	for _, e := range b.directory(at) {
		switch e.tag {
		case tagLatitudeRef:
			south = text(e) == "S"
		case tagLongitudeRef:
			west = text(e) == "W"
		case tagLatitude:
			if v, ok := b.degrees(e); ok {
				l.Latitude = v
				found |= 1
			}
		case tagLongitude:
			if v, ok := b.degrees(e); ok {
				l.Longitude = v
				found |= 2
			}
		}
	}
	if found != 3 || math.Abs(l.Latitude) > 90 || math.Abs(l.Longitude) > 180 {
		return nil
	}
	if south {
		l.Latitude = -l.Latitude
	}
	if west {
		l.Longitude = -l.Longitude
	}
	return &l
}

// withoutPlace returns a copy of the block without its GPS directory and of the same length, so
// that no other offset changes; ok is false if the block cannot be read or contains XMP or IPTC,
// which may name the place.
func withoutPlace(data []byte) (out []byte, ok bool) {
	out = bytes.Clone(data)
	b, first, ok := open(out)
	if !ok {
		return nil, false
	}
	list := b.directory(first)
	if list == nil {
		return nil, false
	}
	found := false
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i].tag {
		case tagGPS:
		case tagXMP, tagIPTC, tagPhotoshop:
			return nil, false
		default:
			continue
		}
		if found || !b.blank(b.number(list[i]), first) {
			return nil, false
		}
		found = true
		b.cut(first, list[i].at)
	}
	return out, true
}

// blank fills the values of a directory with zeros, and then its entries, except where they overlap
// the directory at first; ok is false if together they are longer than the block, which means that
// they overlap.
func (b block) blank(at, first int) (ok bool) {
	end := first + 2 + int(b.order.Uint16(b.data[first:]))*entrySize + 4
	left := len(b.data)
	for _, e := range b.directory(at) {
		for _, span := range [][2]int{{e.outside, e.outside + len(e.value)}, {e.at, e.at + entrySize}} {
			if span[0] == 0 { // a value inside its entry
				continue
			}
			if left -= span[1] - span[0]; left < 0 {
				return false
			}
			if span[0] >= end || span[1] <= first {
				clear(b.data[span[0]:span[1]])
			}
		}
	}
	return true
}

// cut removes one entry of the directory at an offset.
func (b block) cut(directory, at int) {
	n := int(b.order.Uint16(b.data[directory:]))
	end := directory + 2 + n*entrySize
	next := min(end+4, len(b.data))
	if at < directory || at+entrySize > end {
		return
	}
	copy(b.data[at:], b.data[at+entrySize:next])
	clear(b.data[next-entrySize : next])
	b.order.PutUint16(b.data[directory:], uint16(n-1))
}

// upright returns an EXIF block that contains only the orientation.
func upright(orientation int) []byte {
	return []byte{'M', 'M', 0, '*', 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, byte(orientation), 0, 0, 0, 0, 0, 0}
}
