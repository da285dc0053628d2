package picture

import (
	"bytes"
	"encoding/binary"
)

// Bounds of reading a HEIF file (HEIC or AVIF).
const (
	maxItems   = 4096
	maxExtents = 16
)

// isHEIF reports whether files of a type are HEIF.
func isHEIF(contentType string) bool {
	return contentType == "image/heic" || contentType == "image/avif"
}

// boxes calls fn for the boxes in b, until an incomplete one.
func boxes(b []byte, fn func(name string, body []byte)) {
	for len(b) >= 8 {
		skip, length := 8, uint64(binary.BigEndian.Uint32(b))
		switch {
		case length == 0:
			length = uint64(len(b))
		case length == 1:
			if len(b) < 16 {
				return
			}
			skip, length = 16, binary.BigEndian.Uint64(b[8:])
		}
		if length < uint64(skip) || length > uint64(len(b)) {
			return
		}
		fn(string(b[4:8]), b[skip:length])
		b = b[length:]
	}
}

// meta returns the body of the box that describes the file.
func meta(data []byte) []byte {
	if body := within(data, "meta"); len(body) > 4 {
		return body[4:]
	}
	return nil
}

// within returns the body of a box in b.
func within(b []byte, name string) (body []byte) {
	boxes(b, func(n string, b []byte) {
		if n == name && body == nil {
			body = b
		}
	})
	return body
}

// inspectHEIF returns the size of the largest picture of the file, which decoders do not exceed; it
// may be rotated by a quarter turn.
func inspectHEIF(head []byte) (width, height int) {
	boxes(within(within(meta(head), "iprp"), "ipco"), func(name string, b []byte) {
		if name != "ispe" || len(b) < 12 {
			return
		}
		w, h := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		if uint64(w)*uint64(h) > uint64(width)*uint64(height) {
			width, height = int(min(w, 1<<30)), int(min(h, 1<<30))
		}
	})
	return width, height
}

// metadataItems returns the items of a HEIF file that describe it, as slices of data: EXIF blocks
// in one piece, and others. ok is false if one of them was not found.
func metadataItems(data []byte) (exif, others [][]byte, ok bool) {
	kinds, places := map[uint32]string{}, map[uint32][][]byte{}
	idat := within(meta(data), "idat")
	ok = true
	boxes(meta(data), func(name string, b []byte) {
		switch name {
		case "iinf":
			ok = readKinds(b, kinds) && ok
		case "iloc":
			readPlaces(b, data, idat, places)
		}
	})
	left := len(data) // bounds the work: items that overlap would be cleaned repeatedly
	for id, kind := range kinds {
		if kind != "Exif" && kind != "mime" {
			continue
		}
		parts, found := places[id]
		for _, part := range parts {
			left -= len(part)
		}
		if left < 0 {
			return nil, nil, false
		}
		ok = ok && found
		if kind == "Exif" && len(parts) == 1 {
			exif = append(exif, parts...)
		} else {
			others = append(others, parts...)
		}
	}
	return exif, others, ok
}

// readKinds reads the kinds of the items; ok is false if there are too many.
func readKinds(b []byte, kinds map[uint32]string) (ok bool) {
	skip := 6
	if len(b) > 0 && b[0] > 0 {
		skip = 8
	}
	if len(b) < skip {
		return true
	}
	ok = true
	boxes(b[skip:], func(name string, b []byte) {
		switch {
		case name != "infe" || len(b) < 12:
		case len(kinds) == maxItems:
			ok = false
		case b[0] == 2:
			kinds[uint32(binary.BigEndian.Uint16(b[4:]))] = string(b[8:12])
		case b[0] == 3 && len(b) >= 14:
			kinds[binary.BigEndian.Uint32(b[4:])] = string(b[10:14])
		}
	})
	return ok
}

// cursor reads consecutive numbers; beyond the end they are zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) number(size int) (n uint64) {
	if size > 8 || size > len(c.b) {
		c.bad = true
		return 0
	}
	for _, v := range c.b[:size] {
		n = n<<8 | uint64(v)
	}
	c.b = c.b[size:]
	return n
}

// readPlaces reads where the items are that are stored in the file itself, or in its box idat. An
// item with a missing part has no places.
func readPlaces(b, data, idat []byte, places map[uint32][][]byte) {
	c := cursor{b: b}
	version := c.number(1)
	c.number(3)
	sizes := c.number(2)
	offsetSize, lengthSize, baseSize, indexSize := int(sizes>>12&15), int(sizes>>8&15), int(sizes>>4&15), int(sizes&15)
	if lengthSize == 0 {
		return // a length of zero would mean the whole file for every item
	}
	idSize := 2
	if version == 2 {
		idSize = 4
	}
	for range min(c.number(idSize), maxItems) {
		id, method := uint32(c.number(idSize)), uint64(0)
		if version > 0 {
			method = c.number(2) & 15
		} else {
			indexSize = 0
		}
		c.number(2)
		base := c.number(baseSize)
		in, parts, extents := data, [][]byte(nil), c.number(2)
		if method == 1 {
			in = idat
		}
		for range extents {
			c.number(indexSize)
			offset, length := base+c.number(offsetSize), c.number(lengthSize)
			if c.bad {
				return
			}
			size := uint64(len(in))
			if method <= 1 && length > 0 && offset < size && length <= size-offset && len(parts) < maxExtents {
				parts = append(parts, in[offset:offset+length])
			}
		}
		if uint64(len(parts)) == extents {
			places[id] = append(places[id], parts...)
		}
	}
}

// tiff returns the EXIF block of an item, without its header.
func tiff(item []byte) []byte {
	if len(item) < 4 {
		return nil
	}
	skip := uint64(binary.BigEndian.Uint32(item)) + 4
	if skip > uint64(len(item)) {
		return nil
	}
	return item[skip:]
}

// cleanHEIF overwrites the metadata in place, so that no offset of the file changes.
func cleanHEIF(data []byte, strip Strip) ([]byte, bool) {
	out := bytes.Clone(data)
	exif, others, ok := metadataItems(out)
	for _, item := range others {
		for i := range item {
			item[i] = ' '
		}
	}
	for _, item := range exif {
		block := tiff(item)
		if block == nil {
			block = item
		}
		if strip == StripGPS {
			if clean, ok := withoutPlace(block); ok {
				copy(block, clean)
				continue
			}
		}
		clear(block)
		if empty := upright(1); len(block) >= len(empty) {
			copy(block, empty)
		}
	}
	return out, ok
}
