package signin

import "time"

// TOTPCode is what an authenticator shows at an instant.
func TOTPCode(secret []byte, at time.Time) string { return totpCode(secret, at.Unix()/30) }

// MaxPasskeys is how many a user may have.
const MaxPasskeys = maxPasskeys
