package matchmaking

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// A room code is four letters, a dash and four digits, without those that are easily confused: I
// and 1, O and 0. There are 24^4 * 8^4 codes.
const (
	codeLetters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
	codeDigits  = "23456789"
	codeHalf    = 4
)

// maxCodeInput bounds the input that is parsed as a code, in bytes.
const maxCodeInput = 64

// codeTries is how often a code is drawn until one is free. With a million rooms one draw in 1,300
// is taken.
const codeTries = 5

// rude lists the offensive combinations of four letters.
var rude = []string{
	"ARSE", "CUNT", "DYKE", "FAGS", "FUCK", "JAPS", "KUNT", "NAZY", "PAKY", "RAPE", "SCUM", "SLAG", "SLUT", "SPAZ",
	"TARD", "TWAT", "WANK",
}

// newCode draws a code that is not rude, uniformly.
func newCode() string {
	for {
		letters := draw(codeLetters)
		if !slices.Contains(rude, letters) {
			return letters + "-" + draw(codeDigits)
		}
	}
}

// draw picks characters of an alphabet uniformly; bytes past the last multiple of its length are
// drawn again.
func draw(alphabet string) string {
	var text [codeHalf]byte
	for i := range text {
		b := [1]byte{255}
		for int(b[0]) >= 256-256%len(alphabet) {
			_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
		}
		text[i] = alphabet[int(b[0])%len(alphabet)]
	}
	return string(text[:])
}

// parseCode parses a code as people write it: in any case, with any spaces, and with any dash or
// none. It does not correct characters that are not in the alphabets.
func parseCode(text string) (code string, ok bool) {
	if len(text) > maxCodeInput {
		return "", false
	}
	text = strings.ToUpper(norm.NFKC.String(text))
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
	if len(text) < 2*codeHalf {
		return "", false
	}
	letters, rest := text[:codeHalf], []rune(text[codeHalf:])
	if unicode.Is(unicode.Pd, rest[0]) || rest[0] == '\u2212' { // a minus sign
		rest = rest[1:]
	}
	digits := string(rest)
	if !isOf(letters, codeLetters) || !isOf(digits, codeDigits) {
		return "", false
	}
	return letters + "-" + digits, true
}

func isOf(text, alphabet string) bool {
	if len(text) != codeHalf {
		return false
	}
	for i := range len(text) {
		if strings.IndexByte(alphabet, text[i]) < 0 {
			return false
		}
	}
	return true
}

// codeKey returns the key of a code in the store.
func codeKey(code string) string { return "matchmaking:" + code }

// reserve finds a free code and stores the session under it.
func (m *Matchmaking) reserve(ctx context.Context, sessionID string, ttl time.Duration) (string, error) {
	for range codeTries {
		code := m.drawCode()
		stored, err := m.codes.PutIfAbsent(ctx, codeKey(code), []byte(sessionID), ttl)
		if err != nil || stored {
			return code, err
		}
	}
	return "", fmt.Errorf("matchmaking: %d codes in a row are taken", codeTries)
}
