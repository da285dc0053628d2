package capability

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
)

// Bounds of the limit of a list.
const (
	DefaultLimit = 50
	MaxLimit     = 200
	// maxCursor is enough for a text of 1 KiB without control characters, each of which
	// JSON writes as six.
	maxCursor = 4096
)

// Page selects a part of a list: at most Limit items after a cursor.
type Page struct {
	Limit  int
	cursor string
}

// NewPage makes the page an in-process caller asks for. A limit outside of
// 1 to 200 becomes 50; the cursor is the NextCursor of the page before, or "".
func NewPage(limit int, cursor string) Page {
	if limit < 1 || limit > MaxLimit {
		limit = DefaultLimit
	}
	return Page{Limit: limit, cursor: cursor}
}

// Bounded returns the page with a limit within bounds: the default if it is not positive, as in the
// zero Page, and at most [MaxLimit]. Lists call it first.
func (p Page) Bounded() Page {
	if p.Limit < 1 {
		p.Limit = DefaultLimit
	}
	p.Limit = min(p.Limit, MaxLimit)
	return p
}

// After reads the keys of the last item of the page before into the pointers
// (*string or *int64); ok is false on the first page. A cursor that this list
// did not make is refused with kit/invalid_request.
func (p Page) After(keys ...any) (ok bool, err error) {
	if p.cursor == "" {
		return false, nil
	}
	invalid := ErrInvalidRequest.Saying("The cursor is not one of this list.")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(p.cursor)
	if err != nil {
		return false, invalid
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) != len(keys) {
		return false, invalid
	}
	for i, part := range parts {
		if err := json.Unmarshal(part, keys[i]); err != nil || string(part) == "null" {
			return false, invalid
		}
		if text, ok := keys[i].(*string); ok && strings.ContainsRune(*text, 0) {
			return false, invalid // PostgreSQL takes no NUL, not even to compare
		}
	}
	return true, nil
}

// Items is one page of a list. NextCursor is nil on the last page.
type Items[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"nextCursor"`
}

// Paged cuts rows, read with a limit of page.Limit+1, to one page; keys returns
// the sort keys (string or int64) of an item in the order After reads them.
func Paged[T any](page Page, rows []T, keys func(T) []any) Items[T] {
	if len(rows) <= page.Limit {
		return Items[T]{Items: rows}
	}
	rows = rows[:page.Limit]
	return Continued(rows, keys(rows[len(rows)-1])...)
}

// Continued returns a page whose list continues after the keys, as After reads them, however few
// items the page has.
func Continued[T any](rows []T, keys ...any) Items[T] {
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false) // escaping would write &, < and > as six characters
	if err := encoder.Encode(keys); err != nil {
		panic("capability: a list's keys are strings and integers: " + err.Error())
	}
	next := base64.RawURLEncoding.EncodeToString(bytes.TrimSuffix(raw.Bytes(), []byte("\n")))
	return Items[T]{Items: rows, NextCursor: &next}
}

// Page reads ?limit= and ?cursor=, for handlers whose response is more than a list.
func (c *Call) Page() (Page, error) {
	limit := DefaultLimit
	if text := c.Query("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxLimit {
			return Page{}, ErrInvalidRequest.Saying("limit is a number from 1 to %d.", MaxLimit)
		}
		limit = n
	}
	cursor := c.Query("cursor")
	if len(cursor) > maxCursor {
		return Page{}, ErrInvalidRequest.Saying("The cursor is not one of this list.")
	}
	return Page{Limit: limit, cursor: cursor}, nil
}
