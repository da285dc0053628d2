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

// A room code is four letters, a dash and four digits, without the ones that
// are taken for each other: I and 1, O and 0. There are 24^4 * 8^4 of them.
const (
	codeLetters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
	codeDigits  = "23456789"
	codeHalf    = 4
)

// maxCodeInput bounds what a person may have typed around a code, in bytes.
const maxCodeInput = 64

// codeTries is how often a code is drawn until one is free. With a million
// rooms one draw in 1,300 is taken.
const codeTries = 5

// rude are four letters that nobody is to read aloud.
var rude = []string{
	"ARSE", "CUNT", "DYKE", "FAGS", "FUCK", "JAPS", "KUNT", "NAZY", "PAKY", "RAPE", "SCUM", "SLAG", "SLUT", "SPAZ",
	"TARD", "TWAT", "WANK",
}

// newCode draws a code, every one that is not rude with the same chance.
func newCode() string {
	for {
		letters := draw(codeLetters)
		if !slices.Contains(rude, letters) {
			return letters + "-" + draw(codeDigits)
		}
	}
}

// draw picks characters of an alphabet; a byte past its last multiple is drawn
// again, so that none is more likely.
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

// parseCode reads a code as people write it: in any case, with any spaces, the
// dash another one or none. A character that is not of the alphabets is not
// guessed at.
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

// codeKey is where the store has the session of a code.
func codeKey(code string) string { return "matchmaking:" + code }

// reserve finds a free code and points it to a session.
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
