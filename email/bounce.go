package email

import (
	"bufio"
	"bytes"
	"io"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/emersion/go-message"

	"github.com/kitbackend/kit/internal/charset"
)

// Bounds of reading a report.
const (
	maxReport     = 1 << 20
	maxPart       = 128 << 10
	maxParts      = 50
	maxRecipients = 100
)

// ParseReport parses a mail that may be a report: a delivery status notification (RFC 3464), an
// abuse report (RFC 5965), or an older form that reports the same in prose. It returns none for any
// other mail, including auto-replies and receipts.
func ParseReport(mail []byte) []Report {
	if len(mail) > maxReport {
		mail = mail[:maxReport]
	}
	if bytes.HasPrefix(mail, []byte("From ")) { // as in a mail spool
		if end := bytes.IndexByte(mail, '\n'); end > 0 {
			mail = mail[end+1:]
		}
	}
	entity, err := charset.ReadMail(bytes.NewReader(mail))
	if entity == nil || (err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err)) {
		return nil
	}
	parts := readParts(entity)
	switch {
	case parts.feedback != nil:
		return parts.complaint()
	case parts.status != nil:
		return parts.statusReports()
	case isReply(entity.Header):
		return nil
	default:
		return parts.prose(entity.Header)
	}
}

// reportParts are the relevant parts of a report.
type reportParts struct {
	status   []textproto.MIMEHeader // the blocks of message/delivery-status
	feedback textproto.MIMEHeader   // message/feedback-report
	original textproto.MIMEHeader   // the header of the reported message
	text     string                 // all text parts
}

func readParts(entity *message.Entity) reportParts {
	var p reportParts
	n := 0
	_ = entity.Walk(func(_ []int, part *message.Entity, err error) error {
		if n++; n > maxParts {
			return io.EOF
		}
		if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
			return err
		}
		if part == nil {
			return nil
		}
		kind, _, _ := part.Header.ContentType()
		if strings.HasPrefix(kind, "multipart/") {
			return nil
		}
		body, _ := io.ReadAll(io.LimitReader(part.Body, maxPart))
		switch kind {
		case "message/delivery-status", "message/global-delivery-status":
			p.status = append(p.status, blocks(body)...)
		case "message/feedback-report":
			p.feedback = textproto.MIMEHeader{}
			for _, block := range blocks(body) {
				for name, values := range block {
					p.feedback[name] = append(p.feedback[name], values...)
				}
			}
		case "message/rfc822", "message/global", "text/rfc822-headers", "message/rfc822-headers", "message/global-headers":
			if found := blocks(body); len(found) > 0 && p.original == nil {
				p.original = found[0]
			}
		default:
			if strings.HasPrefix(kind, "text/") || kind == "" {
				p.text += string(body) + "\n"
			}
		}
		return nil
	})
	return p
}

// blocks reads groups of header lines separated by empty lines.
func blocks(body []byte) []textproto.MIMEHeader {
	var found []textproto.MIMEHeader
	reader := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(body, "\r\n\r\n"...))))
	for len(found) < maxRecipients {
		block, err := reader.ReadMIMEHeader()
		if len(block) > 0 {
			found = append(found, block)
		}
		if err != nil {
			return found
		}
	}
	return found
}

// typed returns the value of a field such as "rfc822; ada@example.com".
func typed(field string) string {
	if _, value, ok := strings.Cut(field, ";"); ok {
		field = value
	}
	return strings.Trim(strings.TrimSpace(field), "<>")
}

func (p reportParts) statusReports() []Report {
	var reports []Report
	for _, block := range p.status {
		recipient := typed(block.Get("Original-Recipient"))
		if recipient == "" {
			recipient = typed(block.Get("Final-Recipient"))
		}
		status := enhancedForm.FindString(block.Get("Status"))
		diagnostic := typed(block.Get("Diagnostic-Code"))
		if recipient == "" && status == "" {
			continue // the block about the reporting server
		}
		if own := enhancedForm.FindString(diagnostic); own != "" && (status == "" || strings.HasSuffix(status, ".0.0")) {
			status = own
		}
		r := Report{Recipient: recipient, MessageID: p.original.Get("Message-Id"), Status: status, Detail: clip(diagnostic, maxReason)}
		switch action := strings.ToLower(strings.TrimSpace(block.Get("Action"))); {
		case action == "delivered":
			r.Kind = ReportDelivered
		case action == "relayed", action == "expanded":
			continue // later events are not reported
		case action == "delayed", strings.HasPrefix(status, "4.") && action != "failed":
			r.Kind = ReportDelayed
		default:
			r.Kind = bounceKind(status, diagnostic)
		}
		reports = append(reports, r)
	}
	return reports
}

// bounceKind distinguishes a mailbox that does not exist from one that refuses the message.
func bounceKind(status, diagnostic string) ReportKind {
	code := 0
	if found := replyCode.FindString(diagnostic); found != "" {
		code = int(found[0]-'0')*100 + int(found[1]-'0')*10 + int(found[2]-'0')
	}
	switch {
	case strings.HasPrefix(status, "4."), code >= 400 && code < 500:
		return ReportSoftBounce
	case badRecipient(code, status, diagnostic), status == "5.4.4": // no such domain
		return ReportHardBounce
	}
	return ReportSoftBounce
}

var replyCode = regexp.MustCompile(`\b[45]\d\d\b`)

func (p reportParts) complaint() []Report {
	switch strings.ToLower(strings.TrimSpace(p.feedback.Get("Feedback-Type"))) {
	case "not-spam", "auth-failure", "dmarc", "auth-failure-report":
		return nil
	}
	recipient := typed(p.feedback.Get("Original-Rcpt-To"))
	if recipient == "" {
		recipient = p.original.Get("To")
	}
	return []Report{{
		Kind: ReportComplaint, Recipient: recipient, MessageID: p.original.Get("Message-Id"),
		Detail: clip(p.feedback.Get("Feedback-Type")+" reported by "+p.feedback.Get("User-Agent"), maxReason),
	}}
}

// isReply distinguishes replies of people and of auto-responders from bounces.
func isReply(h message.Header) bool {
	kind, params, _ := h.ContentType()
	if kind == "multipart/report" && params["report-type"] == "disposition-notification" {
		return true
	}
	if h.Get("X-Failed-Recipients") != "" {
		return false
	}
	submitted := strings.ToLower(h.Get("Auto-Submitted"))
	return strings.HasPrefix(submitted, "auto-replied") && !serverName.MatchString(h.Get("From")) || h.Get("X-Autoreply") != "" || h.Get("X-Autorespond") != ""
}

var (
	serverName  = regexp.MustCompile(`(?i)mailer-daemon|postmaster|mail delivery (sub)?system|mail administrator`)
	failureWord = regexp.MustCompile(`(?i)undeliver|not be delivered|delivery (has )?(failed|failure)|returned mail|failure notice|delivery status notification|permanent(ly)? (error|failure|fatal)|could not deliver|non remis`)
	delayWord   = regexp.MustCompile(`(?i)(delivery|message) .{0,40}(delayed|deferred)|not (yet )?been delivered yet|will (continue to|keep) (try|be tried)|warning: (message|could not)`)
	writtenID   = regexp.MustCompile(`(?im)^[> \t]*message-id:\s*(<[^<>\s]{3,480}>)`)
	writtenTo   = regexp.MustCompile(`<?([A-Za-z0-9._%+=-]{1,64}@[A-Za-z0-9.-]{1,190}[A-Za-z0-9])>?`)
)

func fromServer(h message.Header) bool {
	path := strings.TrimSpace(h.Get("Return-Path"))
	return path == "<>" || serverName.MatchString(h.Get("From"))
}

// prose parses a bounce that has no machine-readable part.
func (p reportParts) prose(h message.Header) []Report {
	failed := h.Get("X-Failed-Recipients")
	if failed == "" && (!fromServer(h) || !failureWord.MatchString(h.Get("Subject")+"\n"+p.text) && !delayWord.MatchString(p.text)) {
		return nil
	}
	r := Report{MessageID: p.original.Get("Message-Id"), Status: enhancedForm.FindString(p.text)}
	if found := writtenID.FindStringSubmatch(p.text); r.MessageID == "" && found != nil {
		r.MessageID = found[1]
	}
	saying := p.text // without the quoted message
	if at := strings.Index(saying, r.MessageID); r.MessageID != "" && at > 0 {
		saying = saying[:at]
	}
	r.Detail = clip(strings.TrimSpace(saying), maxReason)
	r.Kind = bounceKind(r.Status, saying)
	if delayWord.MatchString(saying) && failed == "" && !strings.HasPrefix(r.Status, "5.") {
		r.Kind = ReportDelayed
	}
	var recipients []string
	for one := range strings.SplitSeq(failed, ",") {
		if one = strings.TrimSpace(one); one != "" && len(recipients) < maxRecipients {
			recipients = append(recipients, one)
		}
	}
	if len(recipients) == 0 {
		for _, found := range writtenTo.FindAllStringSubmatch(saying, 20) {
			if !serverName.MatchString(found[1]) && !slices.Contains(recipients, found[1]) {
				recipients = append(recipients, found[1])
				break
			}
		}
	}
	if len(recipients) == 0 {
		return []Report{r}
	}
	reports := make([]Report, 0, len(recipients))
	for _, recipient := range recipients {
		r.Recipient = recipient
		reports = append(reports, r)
	}
	return reports
}
