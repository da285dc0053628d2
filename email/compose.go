package email

import (
	"bytes"
	"context"
	"crypto/rand"
	"mime"
	"net/mail"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// composed is a complete message except for the signatures.
type composed struct {
	subject   string
	messageID string
	bytes     []byte
}

// compose builds the message of a job.
func (e *Email) compose(ctx context.Context, m Message, to address, key, jobID string, now time.Time) (composed, error) {
	content := Content{Subject: m.Subject, Text: m.Text, HTML: m.HTML}.withText()
	if m.Template != "" {
		var err error
		if content, err = e.Preview(m.Template, m.Data); err != nil {
			return composed{}, err
		}
	}
	if len(content.Text)+len(content.HTML) > e.cfg.MaxMessageBytes {
		return composed{}, ErrMessageTooLarge
	}
	links, err := e.links(ctx, jobID, now)
	if err != nil {
		return composed{}, err
	}
	leave := m.Unsubscribe
	if leave == "" {
		leave = links.unsubscribe(key)
	}
	if m.Template != "" {
		content = content.withLink(leave)
	}
	content.HTML = e.tracked(content.HTML, links, leave)
	out := composed{subject: content.Subject, messageID: m.MessageID}
	if out.messageID == "" {
		out.messageID = "<" + jobID + "." + strings.ToLower(rand.Text()[:16]) + "@" + e.from.domain() + ">"
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := e.setHeaders(msg, m, to, out, now); err != nil {
		return composed{}, err
	}
	if m.Category == CategoryList || m.Unsubscribe != "" {
		setListHeaders(msg, leave, e.from.domain())
	}
	msg.SetBodyString(gomail.TypeTextPlain, content.Text)
	if content.HTML != "" {
		msg.AddAlternativeString(gomail.TypeTextHTML, content.HTML)
	}
	for _, a := range m.Attachments {
		msg.AttachReadSeeker(a.Name, bytes.NewReader(a.Content), gomail.WithFileContentType(gomail.ContentType(a.ContentType)))
	}
	buf := &capped{limit: e.cfg.MaxMessageBytes}
	if _, err := msg.WriteTo(buf); err != nil {
		if buf.full {
			return composed{}, ErrMessageTooLarge
		}
		return composed{}, err
	}
	out.bytes = buf.Bytes()
	return out, nil
}

func (e *Email) setHeaders(msg *gomail.Msg, m Message, to address, out composed, now time.Time) error {
	msg.FromMailAddress(e.from.mail())
	msg.ToMailAddress(to.mail())
	replyTo := e.replyTo
	if m.ReplyTo != "" {
		var err error
		if replyTo, err = parseAddress(m.ReplyTo); err != nil {
			return err
		}
	}
	if replyTo.spec != "" {
		msg.ReplyToMailAddress(replyTo.mail())
	}
	msg.SetGenHeaderPreformatted(gomail.HeaderSubject, foldSubject(out.subject))
	msg.SetDateWithValue(now.UTC())
	msg.SetMessageIDWithValue(strings.Trim(out.messageID, "<>"))
	if m.InReplyTo != "" {
		msg.SetGenHeaderPreformatted("In-Reply-To", m.InReplyTo)
	}
	if len(m.References) > 0 {
		msg.SetGenHeaderPreformatted("References", strings.Join(m.References, "\r\n "))
	}
	for _, header := range [][2]string{
		{"Auto-Submitted", "auto-generated"},
		{"X-Auto-Response-Suppress", "All"},
		{"Feedback-ID", string(m.Category) + ":" + feedbackWord(m.Template) + ":" + e.from.domain()},
	} {
		if _, given := m.header(header[0]); !given {
			msg.SetGenHeader(gomail.Header(header[0]), header[1])
		}
	}
	for name, value := range m.Headers {
		msg.SetGenHeader(gomail.Header(name), value)
	}
	return nil
}

// feedbackWord returns the template as an element of Feedback-ID, in which receivers split at
// colons.
func feedbackWord(template string) string {
	if template == "" {
		return "message"
	}
	return strings.ReplaceAll(template, ":", "-")
}

// setListHeaders adds the headers for one-click unsubscribe (RFC 2369, RFC 8058), unencoded: some
// receivers do not parse an encoded one.
func setListHeaders(msg *gomail.Msg, unsubscribe, domain string) {
	msg.SetGenHeaderPreformatted("List-Id", "<list."+domain+">")
	msg.SetGenHeaderPreformatted("List-Unsubscribe", "<"+unsubscribe+">")
	msg.SetGenHeaderPreformatted("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")
}

// maxLine is the length at which header lines are folded (RFC 5322, section 2.1.1).
const maxLine = 78

// foldSubject encodes a subject and folds it before spaces between words. The first word stays on
// the line of the field name: many parsers keep the leading space if that line is empty.
func foldSubject(subject string) string {
	encoded := mime.QEncoding.Encode("utf-8", subject)
	var out strings.Builder
	line := len("Subject:")
	for i := 0; i < len(encoded); {
		end := i + 1
		for end < len(encoded) && (encoded[end] != ' ' || encoded[end-1] == ' ') {
			end++
		}
		word := encoded[i:end]
		if line += len(word); line > maxLine && i > 0 {
			out.WriteString("\r\n")
			line = len(word)
		}
		out.WriteString(word)
		i = end
	}
	return out.String()
}

// tracked rewrites HTML for Config.Tracking, except the kit's own links and the unsubscribe link.
func (e *Email) tracked(source string, l links, leave string) string {
	if source == "" || (!e.cfg.Tracking.Clicks && !e.cfg.Tracking.Opens) {
		return source
	}
	replace := func(_ int, link string) string { return link }
	if e.cfg.Tracking.Clicks {
		replace = func(index int, link string) string {
			if link == leave || strings.HasPrefix(link, e.callbacks+"/") {
				return link
			}
			return l.click(index, link)
		}
	}
	pixel := ""
	if e.cfg.Tracking.Opens {
		pixel = l.open()
	}
	return track(source, replace, pixel)
}

func (a address) mail() *mail.Address { return &mail.Address{Name: a.name, Address: a.spec} }
