package email

import (
	"bufio"
	"bytes"
	"net/textproto"
	"slices"
	"strings"
)

// headersOf parses the header of a message, sorted by name.
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
