package storage

import (
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/kitbackend/kit/capability"
)

// octets is the media type of unknown bytes.
const octets = "application/octet-stream"

// inline lists the types that a browser may display on the kit's own origin: none that can run
// scripts or that a browser might take for one that can.
var inline = []string{
	"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/x-icon",
	"video/mp4", "video/webm", "video/quicktime",
	"audio/mpeg", "audio/mp4", "audio/aac", "audio/wav", "audio/ogg", "audio/webm",
	"text/plain",
}

// active lists the types, in addition to those that end in +xml, that a browser runs or loads into
// a page.
var active = []string{
	"text/html", "application/xhtml+xml", "text/xml", "application/xml", "text/xsl", "text/css", "text/cache-manifest",
	"text/javascript", "application/javascript", "application/ecmascript", "text/ecmascript", "application/x-javascript",
	"text/jscript", "text/livescript", "text/x-javascript", "text/x-ecmascript", "application/x-ecmascript",
	"text/javascript1.0", "text/javascript1.1", "text/javascript1.2", "text/javascript1.3", "text/javascript1.4", "text/javascript1.5",
	"text/vbscript", "text/x-component", "application/x-shockwave-flash", "application/wasm",
	"message/rfc822", "multipart/related", "multipart/x-mixed-replace", "application/x-mimearchive",
}

// shown returns the type to respond with and whether a browser may display it.
func shown(contentType string) (kind string, show bool) {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return octets, false
	case kind == "text/plain":
		return "text/plain; charset=utf-8", true
	case slices.Contains(inline, kind):
		return kind, true
	case strings.HasSuffix(kind, "+xml"), slices.Contains(active, kind), strings.HasPrefix(kind, "multipart/"):
		return octets, false
	default:
		return contentType, false
	}
}

// storedType returns the type to store in the bucket. A bucket sets no protective headers, so a
// type that a browser could run becomes application/octet-stream.
func storedType(contentType string) string {
	kind, show := shown(contentType)
	if !show {
		return octets
	}
	return kind
}

// disposition returns the Content-Disposition of an object: its file name, and whether a browser
// displays or saves it.
func disposition(logical string, show bool) string {
	name := filename(logical)
	how := "attachment"
	if show {
		how = "inline"
	}
	ascii := strings.Map(func(r rune) rune {
		if r > '~' || r == '"' || r == '\\' || r == '%' {
			return '_'
		}
		return r
	}, name)
	text := how + `; filename="` + ascii + `"`
	if ascii != name {
		text += "; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
	}
	return text
}

// maxFilename bounds a file name in a header, in bytes.
const maxFilename = 200

// filename returns the last segment of a path, with the characters replaced that could leave a
// directory, break a header or reverse the reading direction.
func filename(logical string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), r == '/', r == '\\', r == utf8.RuneError, unicode.Is(unicode.Bidi_Control, r),
			r == '\u2028', r == '\u2029':
			return '_'
		}
		return r
	}, path.Base(logical))
	for len(name) > maxFilename {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	if strings.Trim(name, ". ") == "" {
		return "file"
	}
	return name
}

// checkPath returns the normal form of a logical path. The path is only data, never a place in a
// file system.
func checkPath(logical string) (string, error) {
	if err := capability.CheckText("path", logical, 1, MaxPath); err != nil {
		return "", err
	}
	logical = norm.NFC.String(logical)
	if err := capability.CheckText("path", logical, 1, MaxPath); err != nil {
		return "", err
	}
	for segment := range strings.SplitSeq(logical, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", capability.ErrInvalidRequest.Saying("path has segments separated by single slashes, and none is empty, . or ..")
		}
	}
	if strings.ContainsFunc(logical, func(r rune) bool { return unicode.IsControl(r) || r&0xfffe == 0xfffe }) {
		return "", capability.ErrInvalidRequest.Saying("path holds a control character.")
	}
	return logical, nil
}

// checkPrefix is checkPath for a prefix of paths.
func checkPrefix(prefix string) (string, error) {
	if err := capability.CheckText("prefix", prefix, 0, MaxPath); err != nil {
		return "", err
	}
	return norm.NFC.String(prefix), nil
}

// checkType returns the canonical form of a media type, without parameters other than charset.
func checkType(contentType string) (string, error) {
	if contentType == "" {
		return octets, nil
	}
	bad := capability.ErrInvalidRequest.Saying("contentType is not a media type of at most %d bytes.", MaxContentType)
	if len(contentType) > MaxContentType {
		return "", bad
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.Contains(kind, "/") {
		return "", bad
	}
	keep := map[string]string{}
	if charset := params["charset"]; charset != "" {
		keep["charset"] = charset
	}
	text := mime.FormatMediaType(kind, keep)
	if text == "" || len(text) > MaxContentType || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", bad
	}
	return text, nil
}

// allowed reports whether users may upload a type.
func (c Config) allowed(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	family, _, _ := strings.Cut(kind, "/")
	return len(c.AllowedTypes) == 0 || slices.Contains(c.AllowedTypes, kind) || slices.Contains(c.AllowedTypes, family+"/*")
}
