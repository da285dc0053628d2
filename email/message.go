package email

import (
	"crypto/sha256"
	"encoding/json"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
)

// The bounds of a message; MaxMessageBytes bounds it as a whole.
const (
	maxSubject     = 998
	maxHeaderValue = 2000
	maxHeaders     = 32
	maxReferences  = 50
	maxAttachments = 32
	maxName        = 255
	maxKey         = 256
	maxDelay       = 7 * day
	maxListLink    = 900
)

var (
	messageIDForm = regexp.MustCompile(`^<[!-;=?-~]{1,240}@[!-;=?-~]{1,240}>$`)
	quotaForm     = regexp.MustCompile(`^[a-z0-9_-]{0,32}$`)
	listLinkForm  = regexp.MustCompile(`^[!-+\--;=?-~]+$`)
	headerForm    = regexp.MustCompile(`^(?i:X-[A-Za-z0-9-]{1,60}|List-(Archive|Help|Owner|Post|Subscribe)|Auto-Submitted|Feedback-ID|Importance|Keywords|Precedence)$`)
)

// check refuses messages that cannot be sent, except for their address and size.
func (m Message) check(now time.Time) error {
	invalid := capability.ErrInvalidRequest.Saying
	switch {
	case m.Category != CategoryTransactional && m.Category != CategoryList:
		return invalid("A category is transactional or list.")
	case m.Template == "" && m.Text == "" && m.HTML == "":
		return invalid("A message needs a template, text or HTML.")
	case m.Template != "" && (m.Subject != "" || m.Text != "" || m.HTML != ""):
		return invalid("A message has a template or content of its own, not both.")
	case len(m.IdempotencyKey) > maxKey || len(m.UserID) > maxKey || len(m.Template) > maxName ||
		!plain(m.IdempotencyKey) || !plain(m.UserID) || !plain(m.Template):
		return invalid("An idempotency key, user id or template name is over its bound or not plain text.")
	case !quotaForm.MatchString(m.Quota):
		return invalid("A quota is at most 32 lower case letters, digits, _ and -.")
	case m.SendAt.Sub(now) > maxDelay:
		return invalid("A message waits 7 days at most.")
	case len(m.References) > maxReferences || len(m.Headers) > maxHeaders || len(m.Attachments) > maxAttachments:
		return invalid("A message has at most %d references, %d headers and %d attachments.", maxReferences, maxHeaders, maxAttachments)
	}
	return m.checkHeaders()
}

func (m Message) checkHeaders() error {
	if err := checkSubject(m.Subject); err != nil {
		return err
	}
	if m.Unsubscribe != "" && !isListLink(m.Unsubscribe) {
		return ErrInvalidHeader.Saying("An unsubscribe address is http or https, of at most %d bytes.", maxListLink)
	}
	for name, value := range m.Headers {
		if !headerForm.MatchString(name) {
			return ErrInvalidHeader.Saying("The header %.80q may not be set.", name)
		}
		if len(value) > maxHeaderValue || !plain(value) {
			return ErrInvalidHeader.Saying("The value of %s is too long or has control characters.", name)
		}
	}
	for _, id := range slices.Concat([]string{m.InReplyTo, m.MessageID}, m.References) {
		if id != "" && !messageIDForm.MatchString(id) {
			return ErrInvalidHeader.Saying("A message id is written like <unique@example.com>.")
		}
	}
	for _, a := range m.Attachments {
		_, _, err := mime.ParseMediaType(a.ContentType)
		if a.Name == "" || len(a.Name) > maxName || !plain(a.Name) || !plain(a.ContentType) || err != nil {
			return ErrInvalidHeader.Saying("An attachment has a plain name and a content type.")
		}
	}
	return nil
}

// isListLink reports whether a link is valid in List-Unsubscribe, which is a list of addresses in
// angle brackets, separated by commas.
func isListLink(link string) bool {
	u, err := url.Parse(link)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		len(link) <= maxListLink && listLinkForm.MatchString(link)
}

func checkSubject(subject string) error {
	if len(subject) > maxSubject || !plain(subject) {
		return ErrInvalidHeader.Saying("The subject is too long or has control characters.")
	}
	return nil
}

// hash returns a hash that identifies the request of an idempotency key.
func (m Message) hash() ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, ErrTemplateFailed.Saying("The data does not encode as JSON.").Because(err)
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

// header returns a header of the message, ignoring case.
func (m Message) header(name string) (string, bool) {
	for key, value := range m.Headers {
		if strings.EqualFold(key, name) {
			return value, true
		}
	}
	return "", false
}

// Choices lists the values, for API documents.
func (Category) Choices() []string {
	return []string{string(CategoryTransactional), string(CategoryList)}
}
