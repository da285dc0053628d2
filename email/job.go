package email

import (
	"bufio"
	"bytes"
	"net/textproto"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// headersOf reads the head of a message, sorted by name.
func headersOf(message []byte) []Header {
	headers := []Header{}
	parsed, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(message))).ReadMIMEHeader()
	if err != nil {
		return headers
	}
	for name, values := range parsed {
		for _, value := range values {
			if name != "List-Unsubscribe" {
				headers = append(headers, Header{name, value})
			}
		}
	}
	slices.SortStableFunc(headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}

func optionalText(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func optionalTime(ms int64) *capability.Time {
	if ms == 0 {
		return nil
	}
	t := capability.Millis(ms)
	return &t
}
