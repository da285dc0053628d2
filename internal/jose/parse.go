package jose

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrMalformed is what [Parse] returns, with a reason for the log.
var ErrMalformed = errors.New("jose: malformed token")

const (
	maxDepth = 4
	// maxValues bounds the values of a part, those inside of others included.
	maxValues = 64
	maxKeyID  = 64
	// maxTime is the end of the year 9999, in seconds.
	maxTime = 253402300799
)

var encoding = base64.RawURLEncoding.Strict()

// Parse reads a compact token without verifying it. It accepts only tokens that [Sign] could have
// made: three parts in canonical base64url, each of at most 64 values; the header members alg
// (EdDSA), kid and typ and no other; claims of lower-case names, none twice, with integer exp and
// iat.
func Parse(token string) (*Token, error) {
	if len(token) > MaxSize {
		return nil, malformed("%d bytes, the limit is %d", len(token), MaxSize)
	}
	encodedHeader, rest, _ := strings.Cut(token, ".")
	encodedClaims, encodedSignature, _ := strings.Cut(rest, ".")
	header, err := decodeObject(encodedHeader)
	if err != nil {
		return nil, err
	}
	t := &Token{}
	if err := t.readHeader(header); err != nil {
		return nil, err
	}
	if t.signature, err = decode(encodedSignature); err != nil {
		return nil, err
	}
	if len(t.signature) != ed25519.SignatureSize {
		return nil, malformed("a signature of %d bytes", len(t.signature))
	}
	if t.claims, err = decodeObject(encodedClaims); err != nil {
		return nil, err
	}
	if err := t.readTimes(); err != nil {
		return nil, err
	}
	t.input = []byte(token[:len(encodedHeader)+1+len(encodedClaims)])
	return t, nil
}

func (t *Token) readHeader(header map[string]any) error {
	if header["alg"] != Algorithm {
		return malformed("alg is not %s", Algorithm)
	}
	t.KeyID, _ = header["kid"].(string)
	t.Type, _ = header["typ"].(string)
	if !isKeyID(t.KeyID) || t.Type == "" {
		return malformed("the header lacks a kid or typ")
	}
	if len(header) != 3 {
		return malformed("the header has members besides alg, kid and typ")
	}
	return nil
}

// readTimes reads the claims that every token must have, and holds the other
// registered times to the same form.
func (t *Token) readTimes() error {
	for _, claim := range []struct {
		name     string
		required bool
		into     *int64
	}{{"exp", true, &t.ExpiresAt}, {"iat", true, &t.IssuedAt}, {"nbf", false, nil}, {"auth_time", false, nil}} {
		if _, given := t.claims[claim.name]; !given && !claim.required {
			continue
		}
		seconds, ok := t.Integer(claim.name)
		if !ok || seconds < 0 || seconds > maxTime {
			return malformed("%s is no time in whole seconds", claim.name)
		}
		if claim.into != nil {
			*claim.into = seconds
		}
	}
	return nil
}

// decode reads canonical base64url. Go's decoder, even the strict one, passes
// over line breaks.
func decode(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, malformed("a line break")
	}
	raw, err := encoding.DecodeString(text)
	if err != nil {
		return nil, malformed("a part is not canonical base64url")
	}
	return raw, nil
}

func decodeObject(text string) (map[string]any, error) {
	raw, err := decode(text)
	if err != nil {
		return nil, err
	}
	// The first and last byte leave no room for white space around the object.
	if !utf8.Valid(raw) || !json.Valid(raw) || raw[0] != '{' || raw[len(raw)-1] != '}' {
		return nil, malformed("a part is not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	value, err := (&reader{Decoder: dec}).value(1)
	if err != nil {
		return nil, err
	}
	return value.(map[string]any), nil
}

// reader walks valid JSON, because encoding/json would keep the last of two equal
// members and fold the case of names.
type reader struct {
	*json.Decoder
	values int
}

func (r *reader) value(depth int) (any, error) {
	token, err := r.Token()
	if err != nil {
		return nil, malformed("invalid JSON")
	}
	if r.values++; r.values > maxValues {
		return nil, malformed("more than %d values", maxValues)
	}
	switch token := token.(type) {
	case string:
		// The decoder writes U+FFFD for half a surrogate pair.
		if strings.ContainsAny(token, "\x00\uFFFD") {
			return nil, malformed("a string holds NUL or broken Unicode")
		}
		return token, nil
	case json.Delim:
		if depth > maxDepth {
			return nil, malformed("nested deeper than %d levels", maxDepth)
		}
		if token == '[' {
			return r.array(depth)
		}
		return r.object(depth)
	default:
		return token, nil
	}
}

func (r *reader) object(depth int) (any, error) {
	members := make(map[string]any)
	for r.More() {
		token, err := r.Token()
		if err != nil {
			return nil, malformed("invalid JSON")
		}
		name, _ := token.(string)
		if !isName(name) {
			return nil, malformed("a member name that is not of lower-case letters, digits and _")
		}
		if _, twice := members[name]; twice {
			return nil, malformed("the member %s is given twice", name)
		}
		if members[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return members, r.end()
}

func (r *reader) array(depth int) (any, error) {
	items := []any{}
	for r.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, r.end()
}

func (r *reader) end() error {
	if _, err := r.Token(); err != nil {
		return malformed("invalid JSON")
	}
	return nil
}

// isName reports whether a name is in lower case, so that no variant of it (EXP, Sub) can appear
// next to it.
func isName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || i > 0 && ('0' <= c && c <= '9' || c == '_')) {
			return false
		}
	}
	return name != ""
}

func isKeyID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return id != "" && len(id) <= maxKeyID
}

// integer takes plain digits only: no fraction, no exponent, no minus zero.
func integer(number json.Number) (int64, bool) {
	n, err := strconv.ParseInt(number.String(), 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == number.String()
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}
