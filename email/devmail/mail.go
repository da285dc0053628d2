package devmail

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-message"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/kitbackend/kit/internal/charset"
)

// Mail is a parsed mail of the mailbox.
type Mail struct {
	ID          string
	To          string
	Subject     string
	Text        string
	HTML        string
	Headers     []Header
	Links       []string
	Attachments []string
	KeptAt      time.Time
	// Source is the complete message.
	Source []byte
}

// Header is one decoded header line.
type Header struct{ Name, Value string }

// Header returns the first header with this name, or "".
func (m Mail) Header(name string) string {
	for _, h := range m.Headers {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

var webAddress = regexp.MustCompile(`https?://[^\s<>"')\]]+`)

// parse parses a message; parts that cannot be read remain in Source.
func parse(mailID, to string, source []byte, at time.Time) Mail {
	m := Mail{ID: mailID, To: to, KeptAt: at, Source: source}
	entity, err := charset.ReadMail(bytes.NewReader(source))
	if entity == nil || (err != nil && !message.IsUnknownCharset(err)) {
		return m
	}
	for fields := entity.Header.Fields(); fields.Next(); {
		value, err := fields.Text()
		if err != nil {
			value = fields.Value()
		}
		m.Headers = append(m.Headers, Header{fields.Key(), value})
	}
	m.Subject = m.Header("Subject")
	_ = entity.Walk(func(_ []int, part *message.Entity, err error) error {
		if err != nil || part == nil {
			return nil
		}
		kind, _, _ := part.Header.ContentType()
		if strings.HasPrefix(kind, "multipart/") {
			return nil
		}
		disposition, params, _ := part.Header.ContentDisposition()
		body, _ := io.ReadAll(part.Body)
		switch {
		case disposition == "attachment":
			m.Attachments = append(m.Attachments, params["filename"])
		case kind == "text/plain" && m.Text == "":
			m.Text = strings.ReplaceAll(string(body), "\r\n", "\n")
		case kind == "text/html" && m.HTML == "":
			m.HTML = string(body)
		}
		return nil
	})
	m.Links = links(m.HTML, m.Text, m.Header("List-Unsubscribe"))
	return m
}

// links lists every web address once, in reading order.
func links(source string, texts ...string) []string {
	var found []string
	add := func(link string) {
		link = strings.TrimRight(link, ".,;:!?")
		if webAddress.MatchString(link) && !slices.Contains(found, link) {
			found = append(found, link)
		}
	}
	tokens := html.NewTokenizer(strings.NewReader(source))
	for kind := tokens.Next(); kind != html.ErrorToken; kind = tokens.Next() {
		if token := tokens.Token(); token.DataAtom == atom.A {
			for _, a := range token.Attr {
				if a.Key == "href" {
					add(a.Val)
				}
			}
		}
	}
	for _, text := range texts {
		for _, link := range webAddress.FindAllString(text, -1) {
			add(link)
		}
	}
	return found
}
