package support

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime/quotedprintable"
	"strings"
	"unicode/utf8"

	"github.com/kitbackend/kit/internal/charset"
)

// The bounds of the parts of a mail that are read.
const (
	maxDepth       = 20
	maxParts       = 200
	maxAttachments = 20
	maxDecoded     = 1 << 20
	// maxText is the maximum text of a message that is stored, in bytes.
	maxText = 100_000
)

// The warnings about a mail.
const (
	warnTextCut      = "text_cut"
	warnPartsCut     = "parts_cut"
	warnCharset      = "unknown_charset"
	warnEncoding     = "broken_encoding"
	warnBoundary     = "missing_boundary"
	warnHidden       = "html_hidden_text"
	warnWinmail      = "winmail"
	warnEncrypted    = "encrypted"
	warnBidi         = "bidi_controls"
	warnSenders      = "several_senders"
	warnNameAddress  = "name_shows_other_address"
	warnReplyTo      = "reply_to_elsewhere"
	warnExecutable   = "executable_attachment"
	warnFileRefused  = "attachment_refused"
	warnAuthFailed   = "authentication_failed"
	warnLinkMismatch = "link_shows_other_address"
)

// suspicions are the warnings that flag a thread as suspicious.
var suspicions = map[string]bool{
	warnHidden: true, warnBidi: true, warnSenders: true, warnNameAddress: true, warnReplyTo: true, warnExecutable: true,
	warnAuthFailed: true, warnLinkMismatch: true,
}

// parsed is a parsed mail.
type parsed struct {
	header   header
	text     string // including quotations
	files    []part
	report   bool // the mail is a delivery report or a disposition notification
	warnings []string
}

// part is a file of a mail; open returns a new reader on each call.
type part struct {
	name, kind string
	size       int64
	open       func() io.Reader
}

func (p *parsed) warn(what string) {
	for _, known := range p.warnings {
		if known == what {
			return
		}
	}
	p.warnings = append(p.warnings, what)
}

// parse reads a mail, as far as it can be read; ok is false only if there is no header. It keeps
// slices of raw and decodes at most the bounds above, in time linear in its length times the depth.
func parse(raw []byte) (p parsed, ok bool) {
	h, body, ok := readHeader(raw)
	if !ok {
		return p, false
	}
	p.header = h
	w := walker{parsed: &p}
	w.entity(h, body, 0)
	p.text = w.result()
	return p, true
}

// walker collects the texts of a mail.
type walker struct {
	*parsed
	parts       int
	plain, html strings.Builder
	decoded     int
}

func (w *walker) result() string {
	text := strings.TrimSpace(storable(w.plain.String()))
	if text == "" && w.html.Len() > 0 {
		text = w.readHTML(w.html.String())
	} else if w.html.Len() > 0 {
		w.readHTML(w.html.String()) // only for the warnings
	}
	if len(text) > maxText {
		w.warn(warnTextCut)
		text = clip(text, maxText)
	}
	return text
}

func (w *walker) readHTML(source string) string {
	read := readHTML(source)
	for _, warning := range read.warnings {
		w.warn(warning)
	}
	return strings.TrimSpace(storable(read.text))
}

// entity reads a mail or one of its parts.
func (w *walker) entity(h header, body []byte, depth int) {
	if w.parts++; w.parts > maxParts || depth > maxDepth {
		w.warn(warnPartsCut)
		return
	}
	value := h.get("content-type")
	kind, _, _ := strings.Cut(strings.ToLower(value), ";")
	kind = strings.TrimSpace(kind)
	if depth == 0 {
		w.report = isReport(kind) // in a part it is a file that a person attached
	}
	switch {
	case strings.HasPrefix(kind, "multipart/"):
		w.multipart(kind, value, body, depth)
	case w.isText(kind, h):
		w.leaf(kind, h, body)
	default:
		w.file(kind, h, body)
	}
}

// isReport reports whether the media type is that of a report by a mail server or mail program.
func isReport(kind string) bool {
	switch kind {
	case "multipart/report", "message/delivery-status", "message/disposition-notification", "message/feedback-report":
		return true
	}
	return false
}

func (w *walker) isText(kind string, h header) bool {
	disposition := strings.ToLower(h.get("content-disposition"))
	if strings.HasPrefix(disposition, "attachment") {
		return false
	}
	return kind == "" || kind == "text/plain" || kind == "text/html" || kind == "text" ||
		(!strings.Contains(kind, "/") && disposition == "")
}

// multipart splits a body at its boundary. A body without a boundary is read as text.
func (w *walker) multipart(kind, contentType string, body []byte, depth int) {
	if kind == "multipart/encrypted" {
		w.warn(warnEncrypted)
	}
	boundary := param(contentType, "boundary")
	parts := [][]byte{}
	if boundary != "" && len(boundary) <= 200 {
		parts = split(body, boundary, maxParts-w.parts+1)
	}
	if len(parts) == 0 {
		w.warn(warnBoundary)
		w.leaf("text/plain", nil, body)
		return
	}
	for _, raw := range parts {
		h, rest, ok := readHeader(raw)
		if !ok {
			h, rest = nil, bytes.TrimLeft(raw, "\r\n")
		}
		w.entity(h, rest, depth+1)
	}
}

// split returns the parts between the lines of a boundary, in one pass.
func split(body []byte, boundary string, most int) (parts [][]byte) {
	mark := []byte("--" + boundary)
	begin := -1
	for at := 0; at < len(body) && len(parts) < most; {
		next := len(body)
		if end := bytes.IndexByte(body[at:], '\n'); end >= 0 {
			next = at + end + 1
		}
		if bytes.HasPrefix(body[at:next], mark) {
			tail := bytes.TrimRight(body[at+len(mark):next], " \t\r\n")
			if closing := bytes.Equal(tail, []byte("--")); closing || len(tail) == 0 {
				if begin >= 0 {
					parts = append(parts, withoutLineEnd(body[begin:at]))
				}
				if begin = next; closing {
					return parts
				}
			}
		}
		at = next
	}
	if begin >= 0 && begin < len(body) && len(parts) < most { // the closing boundary is missing
		parts = append(parts, body[begin:])
	}
	return parts
}

// withoutLineEnd removes the line end before a boundary, which is part of the boundary.
func withoutLineEnd(part []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(part, []byte("\n")), []byte("\r"))
}

// leaf decodes a text part.
func (w *walker) leaf(kind string, h header, body []byte) {
	left := maxDecoded - w.decoded
	if left <= 0 {
		w.warn(warnTextCut)
		return
	}
	text, err := io.ReadAll(io.LimitReader(transfer(h, body), int64(left)))
	if err != nil {
		w.warn(warnEncoding)
	}
	if w.decoded += len(text); w.decoded >= maxDecoded {
		w.warn(warnTextCut)
	}
	out := w.charset(h, text)
	if kind == "text/html" {
		w.html.WriteString(out)
		return
	}
	if strings.Contains(strings.ToLower(h.get("content-type")), "flowed") {
		out = unflow(out, strings.EqualFold(param(h.get("content-type"), "delsp"), "yes"))
	}
	if w.plain.Len() > 0 {
		w.plain.WriteString("\n")
	}
	w.plain.WriteString(out)
}

// charset converts a text to UTF-8, from its declared charset or by a guess.
func (w *walker) charset(h header, text []byte) string {
	name := param(h.get("content-type"), "charset")
	if name != "" && !strings.EqualFold(name, "utf-8") && !strings.EqualFold(name, "us-ascii") {
		if decoded, ok := charset.Decode(name, text); ok {
			return string(decoded)
		}
		w.warn(warnCharset)
	}
	if utf8.Valid(text) {
		return string(text)
	}
	return latin(string(text))
}

// file records an attachment and its size, without storing the content.
func (w *walker) file(kind string, h header, body []byte) {
	if len(w.files) >= maxAttachments {
		w.warn(warnPartsCut)
		return
	}
	name := param(h.get("content-disposition"), "filename")
	if name == "" {
		name = param(h.get("content-type"), "name")
	}
	if name == "" && kind == "message/rfc822" {
		name = "message.eml"
	}
	name = fileName(name)
	switch lower := strings.ToLower(name); {
	case kind == "application/ms-tnef" || lower == "winmail.dat":
		w.warn(warnWinmail)
	case strings.HasPrefix(kind, "application/pgp-encrypted"), kind == "application/pkcs7-mime" && strings.HasSuffix(lower, ".p7m"):
		w.warn(warnEncrypted)
	}
	if executable(name) {
		w.warn(warnExecutable)
	}
	open := func() io.Reader { return transfer(h, body) }
	size, err := io.Copy(io.Discard, open())
	if err != nil {
		w.warn(warnEncoding)
	}
	w.files = append(w.files, part{name: name, kind: mediaType(kind), size: size, open: open})
}

// executable reports whether a file name has an extension of programs.
func executable(name string) bool {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return false
	}
	switch strings.ToLower(name[dot+1:]) {
	case "exe", "scr", "com", "bat", "cmd", "pif", "js", "jse", "vbs", "vbe", "wsf", "hta", "msi", "jar", "ps1", "lnk", "iso", "img", "cpl", "reg":
		return true
	}
	return false
}

// transfer decodes the transfer encoding; a body with an unknown one is read as is.
func transfer(h header, body []byte) io.Reader {
	switch strings.ToLower(strings.TrimSpace(h.get("content-transfer-encoding"))) {
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, &base64Cleaner{raw: body})
	case "quoted-printable":
		return quotedprintable.NewReader(bytes.NewReader(body))
	default:
		return bytes.NewReader(body)
	}
}

// base64Cleaner skips characters outside of the alphabet, as MIME requires, and ends at the
// padding; it pads a truncated last quantum.
type base64Cleaner struct {
	raw    []byte
	at, n  int
	padded int
}

func (c *base64Cleaner) Read(p []byte) (n int, err error) {
	for n < len(p) && c.at < len(c.raw) {
		b := c.raw[c.at]
		switch {
		case b >= 'A' && b <= 'Z', b >= 'a' && b <= 'z', b >= '0' && b <= '9', b == '+', b == '/':
			p[n] = b
			n++
			c.n++
		case b == '=' && c.n%4 >= 2:
			c.at = len(c.raw)
			continue
		}
		c.at++
	}
	if c.at >= len(c.raw) {
		if c.padded == 0 {
			c.padded = 1 + (4-c.n%4)%4
			if c.n%4 == 1 {
				c.padded = 1 // a single character encodes no byte
			}
		}
		for n < len(p) && c.padded > 1 {
			p[n] = '='
			n++
			c.padded--
		}
		if n == 0 {
			return 0, io.EOF
		}
	}
	return n, nil
}

// unflow joins the soft line breaks of format=flowed (RFC 3676).
func unflow(text string, delSp bool) string {
	var out strings.Builder
	out.Grow(len(text))
	joining := false
	for l := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		quoted := strings.HasPrefix(l, ">")
		if !joining || quoted {
			if out.Len() > 0 {
				out.WriteByte('\n')
			}
		}
		if !quoted {
			l = strings.TrimPrefix(l, " ")
		}
		joining = strings.HasSuffix(l, " ") && l != "-- " && !quoted
		if joining && delSp {
			l = l[:len(l)-1]
		}
		out.WriteString(l)
	}
	return out.String()
}
