package picture

import "bytes"

// SniffLen is how many first bytes Sniff needs.
const SniffLen = 64

// signatures are the first bytes of the known types. A dot matches any byte.
var signatures = []struct{ begins, contentType string }{
	{"\xff\xd8\xff", "image/jpeg"},
	{pngName, "image/png"},
	{"GIF87a", "image/gif"},
	{"GIF89a", "image/gif"},
	{"RIFF....WEBPVP8", "image/webp"},
	{"RIFF....WAVE", "audio/wav"},
	{"\x1a\x45\xdf\xa3", "video/webm"},
	{"OggS\x00", "audio/ogg"},
	{"fLaC", "audio/flac"},
	{"ID3", "audio/mpeg"},
	{"\xff\xfb", "audio/mpeg"},
	{"\xff\xf3", "audio/mpeg"},
	{"\xff\xf1", "audio/aac"},
	{"....ftypavif", "image/avif"},
	{"....ftypavis", "image/avif"},
	{"....ftyphei", "image/heic"},
	{"....ftyphev", "image/heic"},
	{"....ftypmif1", "image/heic"},
	{"....ftypmsf1", "image/heic"},
	{"....ftypM4A", "audio/mp4"},
	{"....ftypM4B", "audio/mp4"},
	{"....ftypqt", "video/quicktime"},
	{"....ftyp", "video/mp4"},
	{"....moov", "video/quicktime"},
}

// Sniff returns the type of a file by its first bytes, or "" if it is unknown, as for playlists,
// vector graphics and programs.
func Sniff(head []byte) string {
	for _, s := range signatures {
		if begins(head, s.begins) {
			return s.contentType
		}
	}
	return ""
}

func begins(head []byte, pattern string) bool {
	if !bytes.Contains([]byte(pattern), []byte("....")) {
		return bytes.HasPrefix(head, []byte(pattern))
	}
	if len(head) < len(pattern) {
		return false
	}
	for i := range len(pattern) {
		if pattern[i] != '.' && pattern[i] != head[i] {
			return false
		}
	}
	return true
}
