package picture

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"regexp"
	"slices"
)

// Strip is what is removed from a picture's file. The pixels do not change.
type Strip string

// The amounts of metadata.
const (
	StripGPS  Strip = "gps"  // where the picture was taken, and what names it
	StripAll  Strip = "all"  // everything but the orientation and the color profile
	StripNone Strip = "none" // nothing
)

const exifName = "Exif\x00\x00"

// Metadata returns the EXIF block of a picture, or nil.
func Metadata(contentType string, data []byte) []byte {
	var found []byte
	switch contentType {
	case "image/jpeg":
		segments(data, func(marker byte, body []byte) bool {
			if marker == 0xe1 && bytes.HasPrefix(body, []byte(exifName)) {
				found = body[len(exifName):]
			}
			return found == nil
		})
	case "image/png":
		chunks(data, func(name string, body, _ []byte) { found = pick(found, name == "eXIf", body) })
	case "image/webp":
		riff(data, func(name string, body, _ []byte) { found = pick(found, name == "EXIF", named(body)) })
	case "image/heic", "image/avif":
		if items, _, _ := metadataItems(data); len(items) > 0 {
			found = tiff(items[0])
		}
	}
	return found
}

func pick(found []byte, yes bool, body []byte) []byte {
	if found == nil && yes {
		return body
	}
	return found
}

// named removes the name from an EXIF block that has one.
func named(body []byte) []byte { return bytes.TrimPrefix(body, []byte(exifName)) }

// Clean returns the file without the metadata to remove; ok is false if the format of the file
// cannot be cleaned. Bytes after the end of the picture are removed too.
func Clean(contentType string, data []byte, strip Strip) (out []byte, ok bool) {
	if strip == StripNone {
		return data, true
	}
	switch contentType {
	case "image/heic", "image/avif":
		return cleanHEIF(data, strip)
	case "image/jpeg":
		return cleanJPEG(data, strip)
	case "image/png":
		return cleanPNG(data, strip)
	case "image/webp":
		return cleanWebP(data, strip)
	case "image/gif":
		return cleanGIF(data, strip)
	default:
		return nil, false
	}
}

// cleanBlock returns what is kept of an EXIF block, nil for nothing.
func cleanBlock(body []byte, strip Strip) []byte {
	if strip == StripGPS {
		if out, ok := withoutPlace(body); ok {
			return out
		}
	}
	if o := ReadExif(body).Orientation; o != 1 {
		return upright(o)
	}
	return nil
}

// segments calls fn for every segment of a JPEG up to the end of its picture, until fn returns
// false. The data of a scan has marker 0, and the end 0xd9.
func segments(data []byte, fn func(marker byte, body []byte) bool) {
	if len(data) < 4 || data[0] != 0xff || data[1] != 0xd8 {
		return
	}
	for at := 2; at+2 <= len(data); {
		if data[at] != 0xff { // decoders skip bytes before a marker
			next := bytes.IndexByte(data[at:], 0xff)
			if next < 0 {
				return
			}
			at += next
			continue
		}
		marker := data[at+1]
		switch {
		case marker == 0xff:
			at++
			continue
		case marker == 0xd9:
			fn(marker, nil)
			return
		case marker <= 0x01 || marker >= 0xd0 && marker <= 0xd7:
			at += 2
			continue
		}
		if at+4 > len(data) {
			return
		}
		length := int(binary.BigEndian.Uint16(data[at+2:]))
		if length < 2 || at+2+length > len(data) {
			return
		}
		if !fn(marker, data[at+4:at+2+length]) {
			return
		}
		at += 2 + length
		if marker != 0xda {
			continue
		}
		end := at
		for end+1 < len(data) && (data[end] != 0xff || data[end+1] == 0 || data[end+1] >= 0xd0 && data[end+1] <= 0xd7) {
			end++
		}
		if end+1 >= len(data) || !fn(0, data[at:end]) {
			return
		}
		at = end
	}
}

// photoshopName begins the segments of a JPEG in which Photoshop stores resources, IPTC among them.
const photoshopName = "Photoshop 3.0\x00"

// iptcPlace finds the datasets of IPTC that name a place: content location, city, sublocation,
// province, country.
var iptcPlace = regexp.MustCompile("\x1c\x02[\x1a\x1b\x5a\x5c\x5f\x64\x65]")

// xmpPlace finds the properties of XMP that are or name a place.
var xmpPlace = regexp.MustCompile(`GPS|:(?:City|State|Country|Location|Sublocation|ProvinceState)`)

// namesPlace reports whether the IPTC of a JPEG names a place. It may be split anywhere between
// segments.
func namesPlace(data []byte) bool {
	var resources []byte
	segments(data, func(marker byte, body []byte) bool {
		if marker == 0xed {
			resources = append(resources, bytes.TrimPrefix(body, []byte(photoshopName))...)
		}
		return true
	})
	return iptcPlace.Match(resources)
}

func cleanJPEG(data []byte, strip Strip) ([]byte, bool) {
	out := bytes.NewBuffer(make([]byte, 0, len(data)))
	out.Write([]byte{0xff, 0xd8})
	ended, namesPlace := false, strip == StripGPS && namesPlace(data)
	segments(data, func(marker byte, body []byte) bool {
		switch {
		case marker == 0:
			out.Write(body)
			return true
		case marker == 0xd9:
			ended = true
			out.Write([]byte{0xff, 0xd9})
			return true
		case marker == 0xe1 && bytes.HasPrefix(body, []byte(exifName)):
			if body = cleanBlock(body[len(exifName):], strip); body == nil {
				return true
			}
			body = append([]byte(exifName), body...)
		case strip == StripAll && dropped(marker), strip == StripGPS && marker == 0xe1 && xmpPlace.Match(body), namesPlace && marker == 0xed,
			marker == 0xe1 && bytes.HasPrefix(body, []byte("http://ns.adobe.com/xmp/extension/")):
			return true
		}
		out.Write([]byte{0xff, marker})
		_ = binary.Write(out, binary.BigEndian, uint16(len(body)+2)) // a buffer never fails
		out.Write(body)
		return true
	})
	return out.Bytes(), ended
}

// dropped reports whether a segment is metadata: all but JFIF, the color profile and Adobe's
// segment, which identifies CMYK.
func dropped(marker byte) bool {
	return marker == 0xfe || marker >= 0xe1 && marker <= 0xef && marker != 0xe2 && marker != 0xee
}

const pngName = "\x89PNG\r\n\x1a\n"

// chunks calls fn for every chunk of a PNG up to its end, with its body and the whole chunk; it
// reports whether the end was found.
func chunks(data []byte, fn func(name string, body, whole []byte)) bool {
	if !bytes.HasPrefix(data, []byte(pngName)) {
		return false
	}
	for rest := data[len(pngName):]; len(rest) >= 12; {
		length := int64(binary.BigEndian.Uint32(rest))
		if length+12 > int64(len(rest)) {
			return false
		}
		name := string(rest[4:8])
		fn(name, rest[8:8+length], rest[:12+length])
		if name == "IEND" {
			return true
		}
		rest = rest[12+length:]
	}
	return false
}

func cleanPNG(data []byte, strip Strip) ([]byte, bool) {
	out := bytes.NewBuffer(make([]byte, 0, len(data)))
	out.WriteString(pngName)
	ended := chunks(data, func(name string, body, whole []byte) {
		switch name {
		case "eXIf":
			if body = cleanBlock(body, strip); body != nil {
				writeChunk(out, name, body)
			}
			return
		case "tEXt", "zTXt", "iTXt":
			// Raw profiles and XMP may contain locations, and compressed ones cannot be searched.
			if strip == StripAll || bytes.HasPrefix(body, []byte("Raw profile type")) || bytes.HasPrefix(body, []byte("XML:com.adobe.xmp")) {
				return
			}
		case "tIME":
			if strip == StripAll {
				return
			}
		}
		out.Write(whole)
	})
	return out.Bytes(), ended
}

func writeChunk(out *bytes.Buffer, name string, body []byte) {
	part := append([]byte(name), body...)
	_ = binary.Write(out, binary.BigEndian, uint32(len(body))) // a buffer never fails
	out.Write(part)
	_ = binary.Write(out, binary.BigEndian, crc32.ChecksumIEEE(part))
}

// cleanGIF removes the application extensions between the pictures, except those for animation and
// color, and all bytes after the end. A truncated file stays truncated.
func cleanGIF(data []byte, strip Strip) ([]byte, bool) {
	const header, frame = 13, 10
	if len(data) < header || string(data[:3]) != "GIF" {
		return nil, false
	}
	at := header + colours(data[header-3])
	if at > len(data) {
		return nil, false
	}
	out := bytes.NewBuffer(make([]byte, 0, len(data)))
	out.Write(data[:at])
	for at < len(data) {
		block := data[at:]
		var length int
		keep := true
		switch {
		case block[0] == 0: // some encoders end a block twice, which decoders skip
			at++
			continue
		case block[0] == ',' && len(block) > frame:
			length = frame + colours(block[frame-1]) + 1
		case block[0] == '!' && len(block) > 2:
			length, keep = 2, kept(block[1], block[2:], strip)
		default: // the end, or a block at which every decoder stops
			out.WriteByte(';')
			return out.Bytes(), true
		}
		for length < len(block) && block[length] > 0 {
			length += 1 + int(block[length])
		}
		length = min(length+1, len(block))
		if keep {
			out.Write(block[:length])
		}
		at += length
	}
	return out.Bytes(), true
}

// colours returns the length of the color table that the flags of a GIF declare.
func colours(flags byte) int {
	if flags&0x80 == 0 {
		return 0
	}
	return 6 << (flags & 7)
}

// kept reports whether an extension of a GIF is kept, by its label and its blocks.
func kept(label byte, blocks []byte, strip Strip) bool {
	switch label {
	case 0xfe: // comment
		return strip != StripAll
	case 0xff: // application
		return slices.ContainsFunc([]string{"\vNETSCAPE2.0", "\vANIMEXTS1.0", "\vICCRGBG1012"}, func(name string) bool { return bytes.HasPrefix(blocks, []byte(name)) })
	default:
		return true
	}
}

// riff calls fn for every chunk of a WebP file, with its body and the whole chunk; it reports
// whether all chunks were complete.
func riff(data []byte, fn func(name string, body, whole []byte)) bool {
	if len(data) < 12 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return false
	}
	size := int64(binary.LittleEndian.Uint32(data[4:])) + 8
	if size < 12 || size > int64(len(data)) {
		return false
	}
	for rest := data[12:size]; len(rest) > 0; {
		if len(rest) < 8 {
			return false
		}
		length := int64(binary.LittleEndian.Uint32(rest[4:]))
		whole := 8 + length + length&1
		if whole > int64(len(rest)) {
			if whole-1 != int64(len(rest)) {
				return false
			}
			whole = int64(len(rest))
		}
		fn(string(rest[:4]), rest[8:8+length], rest[:whole])
		rest = rest[whole:]
	}
	return true
}

func cleanWebP(data []byte, strip Strip) ([]byte, bool) {
	out := bytes.NewBuffer(make([]byte, 0, len(data)))
	out.WriteString("RIFF\x00\x00\x00\x00WEBP")
	flags := -1 // offset of the flags of the extended header
	const hasExif, hasXMP = 0x08, 0x04
	keptExif := false
	ok := riff(data, func(name string, body, whole []byte) {
		switch name {
		case "XMP ":
			return
		case "EXIF":
			if body = cleanBlock(named(body), strip); body != nil {
				keptExif = true
				writeRIFF(out, name, body)
			}
			return
		case "VP8X":
			if len(body) > 0 {
				flags = out.Len() + 8
			}
		}
		out.Write(whole)
	})
	clean := out.Bytes()
	if flags > 0 {
		clean[flags] &^= hasXMP
		if !keptExif {
			clean[flags] &^= hasExif
		}
	}
	binary.LittleEndian.PutUint32(clean[4:], uint32(len(clean)-8))
	return clean, ok
}

func writeRIFF(out *bytes.Buffer, name string, body []byte) {
	out.WriteString(name)
	_ = binary.Write(out, binary.LittleEndian, uint32(len(body))) // a buffer never fails
	out.Write(body)
	if len(body)&1 == 1 {
		out.WriteByte(0)
	}
}
