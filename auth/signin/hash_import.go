package signin

import (
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/scrypt"
)

// The bounds of the cost of an imported hash, so that none holds gigabytes or minutes.
const (
	maxHashLength = 512
	maxHashMemory = 128 << 10 // KiB
	maxArgonWork  = 1 << 20   // memory in KiB times passes
	maxArgonTime  = 16
	maxThreads    = 16
	maxScryptWork = 1 << 21 // N times r times p
	maxBcryptCost = 14
)

// phc is the base64 of the PHC string format.
var phc = base64.RawStdEncoding.Strict()

// check reports whether a password matches a hash.
type check func(password string) bool

// parseHash reads a hash: argon2id, argon2i or scrypt as PHC strings, bcrypt,
// and better-auth's scrypt. It refuses what costs too much to check.
func parseHash(encoded string) (check, error) {
	var form check
	switch {
	case len(encoded) > maxHashLength:
	case strings.HasPrefix(encoded, "$argon2"):
		form = argonForm(encoded)
	case strings.HasPrefix(encoded, "$scrypt$"):
		form = scryptForm(encoded)
	case strings.HasPrefix(encoded, "$2"):
		form = bcryptForm(encoded)
	default:
		form = betterAuthForm(encoded)
	}
	if form == nil {
		return nil, errHashForm
	}
	return form, nil
}

var argonPattern = regexp.MustCompile(`^\$(argon2id?)\$v=(\d{1,3})\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$`)

func argonForm(encoded string) check {
	parts := argonPattern.FindStringSubmatch(encoded)
	if parts == nil {
		return nil
	}
	var version, memory, time, threads uint32
	scan(parts[2:6], &version, &memory, &time, &threads)
	salt, key, ok := saltAndKey(parts[6], parts[7])
	if !ok || version != argon2.Version || time < 1 || time > maxArgonTime || threads < 1 || threads > maxThreads ||
		memory < 8*threads || memory > maxHashMemory || memory*time > maxArgonWork {
		return nil
	}
	derive := argon2.Key
	if parts[1] == "argon2id" {
		derive = argon2.IDKey
	}
	return func(password string) bool {
		return equal(key, derive([]byte(password), salt, time, memory, uint8(threads), uint32(len(key))))
	}
}

var scryptPattern = regexp.MustCompile(`^\$scrypt\$ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$`)

func scryptForm(encoded string) check {
	parts := scryptPattern.FindStringSubmatch(encoded)
	if parts == nil {
		return nil
	}
	var ln, r, p uint32
	scan(parts[1:4], &ln, &r, &p)
	salt, key, ok := saltAndKey(parts[4], parts[5])
	if !ok || ln < 1 || ln > 20 {
		return nil
	}
	return newScrypt(salt, key, 1<<ln, int(r), int(p))
}

func newScrypt(salt, key []byte, n, r, p int) check {
	if r < 1 || p < 1 || n*r/8 > maxHashMemory || n*r*p > maxScryptWork { // 128 bytes for each of N times r
		return nil
	}
	return func(password string) bool {
		derived, err := scrypt.Key([]byte(password), salt, n, r, p, len(key))
		return err == nil && equal(key, derived)
	}
}

var betterAuthPattern = regexp.MustCompile(`^([0-9a-f]{16,128}):([0-9a-f]{128})$`)

// betterAuthForm parses salt and key in hex. The salt is the text, not its bytes.
func betterAuthForm(encoded string) check {
	parts := betterAuthPattern.FindStringSubmatch(encoded)
	if parts == nil {
		return nil
	}
	key, err := hex.DecodeString(parts[2])
	if err != nil {
		return nil
	}
	return newScrypt([]byte(parts[1]), key, 1<<14, 16, 1)
}

var bcryptPattern = regexp.MustCompile(`^\$2[abxy]?\$(\d\d)\$[./A-Za-z0-9]{53}$`)

func bcryptForm(encoded string) check {
	parts := bcryptPattern.FindStringSubmatch(encoded)
	if parts == nil {
		return nil
	}
	var cost uint32
	scan(parts[1:], &cost)
	if cost < uint32(bcrypt.MinCost) || cost > maxBcryptCost {
		return nil
	}
	return func(password string) bool {
		return bcrypt.CompareHashAndPassword([]byte(encoded), []byte(password)) == nil
	}
}

// scan reads numbers that a pattern has found to be digits, few enough to fit.
func scan(digits []string, into ...*uint32) {
	for i, number := range into {
		value, _ := strconv.ParseUint(digits[i], 10, 32)
		*number = uint32(value)
	}
}

func saltAndKey(salt64, key64 string) (salt, key []byte, ok bool) {
	salt, err := phc.DecodeString(salt64)
	if err != nil || len(salt) < 8 || len(salt) > 64 {
		return nil, nil, false
	}
	key, err = phc.DecodeString(key64)
	return salt, key, err == nil && len(key) >= 16 && len(key) <= 128
}
