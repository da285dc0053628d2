package mount

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/refusal"
)

// KeyLifetime is how long a response is repeated for its Idempotency-Key.
const KeyLifetime = 24 * time.Hour

//go:embed migrations
var migrations embed.FS

// Migrations makes the table of idempotency keys.
func Migrations() database.Migrations {
	return database.Migrations{Name: "kit", FS: migrations}
}

// stored is the response kept under a key.
type stored struct {
	hash   string
	status int
	body   string
}

// once runs the handler at most once for a key of this route and caller. The
// claim, the operation and the response are one transaction: a refused or lost call leaves nothing,
// and of two concurrent calls the second waits and repeats the first response.
func (x *exchange) once(key string, call *capability.Call) error {
	body, err := call.Body()
	if err != nil {
		return err
	}
	hash := fingerprint(x.r, body)
	var kept stored
	var replayed bool
	err = x.keys().InTx(x.r.Context(), func(ctx context.Context) error {
		replayed = false
		claimed, err := x.claim(ctx, key, hash)
		if err != nil {
			return err
		}
		if !claimed {
			replayed = true
			kept, err = x.recall(ctx, key)
			return err
		}
		kept, err = x.perform(ctx, call)
		if err != nil {
			return err
		}
		return x.keep(ctx, key, kept)
	})
	if err == nil && replayed && kept.hash != hash {
		err = capability.ErrIdempotencyConflict
	}
	if err := x.decided(err); err != nil {
		return err
	}
	if replayed {
		x.w.Header().Set("Idempotency-Replayed", "true")
	}
	if kept.body == "" {
		x.w.WriteHeader(kept.status)
		return nil
	}
	return x.write(kept.status, []byte(kept.body))
}

func (x *exchange) perform(ctx context.Context, call *capability.Call) (stored, error) {
	h := x.row.entry.Route.Handle
	out, err := h.Reply(call.In(ctx))
	if err != nil || out == nil {
		return stored{status: h.Status()}, err
	}
	var buf bytes.Buffer
	err = refusal.Encode(&buf, out)
	return stored{status: h.StatusOf(out), body: buf.String()}, err
}

// keys is the database that holds the keys of this route.
func (x *exchange) keys() *database.DB { return cmp.Or(x.row.entry.DB, x.m.DB) }

func (x *exchange) keyOwner() (route, caller string) {
	route = x.origin.Method + " " + x.origin.Route
	if c := x.origin.Caller; c.UserID != "" {
		return route, "user " + c.UserID
	}
	return route, "key " + x.origin.Caller.KeyID
}

// claim takes the key, or an expired one.
func (x *exchange) claim(ctx context.Context, key, hash string) (bool, error) {
	route, caller := x.keyOwner()
	now := x.keys().Now(ctx)
	rows, err := x.keys().Exec(ctx, `
		INSERT INTO kit_idempotency (route, caller, key, hash, status, answer, expires_at)
		VALUES ($1, $2, $3, $4, 0, '', $5)
		ON CONFLICT (route, caller, key) DO UPDATE
		SET hash = excluded.hash, status = 0, answer = '', expires_at = excluded.expires_at
		WHERE kit_idempotency.expires_at <= $6`,
		route, caller, key, hash, now.Add(KeyLifetime).UnixMilli(), now.UnixMilli())
	return rows == 1, err
}

func (x *exchange) recall(ctx context.Context, key string) (stored, error) {
	route, caller := x.keyOwner()
	var s stored
	err := x.keys().QueryRow(ctx, `
		SELECT hash, status, answer FROM kit_idempotency WHERE route = $1 AND caller = $2 AND key = $3`,
		route, caller, key).Scan(&s.hash, &s.status, &s.body)
	return s, err
}

func (x *exchange) keep(ctx context.Context, key string, s stored) error {
	route, caller := x.keyOwner()
	_, err := x.keys().Exec(ctx, `
		UPDATE kit_idempotency SET status = $4, answer = $5 WHERE route = $1 AND caller = $2 AND key = $3`,
		route, caller, key, s.status, s.body)
	return err
}

// sweepChunk bounds the rows one sweep statement removes.
const sweepChunk = 1000

// SweepKeys removes the expired keys.
func SweepKeys(ctx context.Context, db *database.DB) error {
	for {
		rows, err := db.Exec(ctx, `
			DELETE FROM kit_idempotency WHERE (route, caller, key) IN
			(SELECT route, caller, key FROM kit_idempotency WHERE expires_at <= $1 LIMIT $2)`,
			db.Now(ctx).UnixMilli(), sweepChunk)
		if err != nil || rows < sweepChunk {
			return err
		}
	}
}

// ForgetUser removes the responses kept under a user's keys.
func ForgetUser(ctx context.Context, db *database.DB, userID string) error {
	_, err := db.Exec(ctx, `DELETE FROM kit_idempotency WHERE caller = $1`, "user "+userID)
	return err
}

// fingerprint hashes the parts of a request that a repeated one must share with it.
func fingerprint(r *http.Request, body []byte) string {
	h := sha256.New()
	h.Write([]byte(r.URL.EscapedPath() + "?" + r.URL.RawQuery + "\n"))
	h.Write(body)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
