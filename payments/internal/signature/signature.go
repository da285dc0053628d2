// Package signature checks webhooks that are signed with HMAC-SHA256 over a
// timestamp and the exact bytes of the body. The three forms in use differ in the place of the
// parts, not in the check: [Header] reads the form that keeps everything in one header, [Standard]
// that of Standard Webhooks.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxHeader bounds a header that is parsed, in bytes.
	maxHeader = 4 << 10
	// maxSignatures bounds how many signatures of one delivery are compared.
	maxSignatures = 16
)

// ErrProof is the only error, because details would help only an attacker.
var ErrProof = errors.New("signature: the signature does not verify")

// Header describes a header with a timestamp and signatures in hex, such as
// "t=1700000000,v1=5257a8".
type Header struct {
	// Name is the header's, Separator stands between its members.
	Name, Separator string
	// Time and Signature are the names of the two members that count; others are
	// ignored. Between timestamp and body the signed text has Joint.
	Time, Signature, Joint string
}

// Verify returns ErrProof unless one of the signatures was made with one of the
// keys at most tolerance before or after now. Keys that are empty never match.
func (f Header) Verify(h http.Header, body []byte, keys [][]byte, now time.Time, tolerance time.Duration) error {
	values := h.Values(f.Name)
	if len(values) != 1 || len(values[0]) > maxHeader {
		return ErrProof
	}
	var stamp string
	var given [][]byte
	for member := range strings.SplitSeq(values[0], f.Separator) {
		name, value, _ := strings.Cut(strings.TrimSpace(member), "=")
		switch name {
		case f.Time:
			if stamp != "" {
				return ErrProof
			}
			stamp = value
		case f.Signature:
			if sum, err := hex.DecodeString(value); err == nil && len(sum) == sha256.Size {
				given = append(given, sum)
			}
		}
	}
	if !fresh(stamp, now, tolerance) {
		return ErrProof
	}
	return match(keys, given, []byte(stamp+f.Joint), body)
}

// Sign returns the header's value for a body. It is for tests and scripted stores.
func (f Header) Sign(key, body []byte, at time.Time) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	sum := hex.EncodeToString(Sum(key, []byte(stamp+f.Joint), body))
	return f.Time + "=" + stamp + f.Separator + f.Signature + "=" + sum
}

// The headers of Standard Webhooks, version 1.
const (
	StandardID        = "Webhook-Id"
	StandardTimestamp = "Webhook-Timestamp"
	StandardSignature = "Webhook-Signature"
)

// Standard returns the id of a delivery, which is part of what is signed, or
// ErrProof unless it is signed as Standard Webhooks has it, with one of the keys
// at most tolerance before or after now.
func Standard(h http.Header, body []byte, keys [][]byte, now time.Time, tolerance time.Duration) (id string, err error) {
	id, stamp, signatures := one(h, StandardID), one(h, StandardTimestamp), one(h, StandardSignature)
	if id == "" || strings.Contains(id, ".") || !fresh(stamp, now, tolerance) {
		return "", ErrProof
	}
	var given [][]byte
	for member := range strings.SplitSeq(signatures, " ") {
		version, value, _ := strings.Cut(member, ",")
		if sum, err := base64.StdEncoding.DecodeString(value); version == "v1" && err == nil && len(sum) == sha256.Size {
			given = append(given, sum)
		}
	}
	return id, match(keys, given, []byte(id+"."+stamp+"."), body)
}

// SignStandard sets the three headers for a body. It is for tests and scripted
// stores.
func SignStandard(h http.Header, key []byte, id string, body []byte, at time.Time) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set(StandardID, id)
	h.Set(StandardTimestamp, stamp)
	h.Set(StandardSignature, "v1,"+base64.StdEncoding.EncodeToString(Sum(key, []byte(id+"."+stamp+"."), body)))
}

// Sum is HMAC-SHA256 over the parts in their order.
func Sum(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// one returns a header that is present once and not too long.
func one(h http.Header, name string) string {
	values := h.Values(name)
	if len(values) != 1 || len(values[0]) > maxHeader {
		return ""
	}
	return values[0]
}

// fresh reports whether a timestamp in seconds is canonical and near enough.
func fresh(stamp string, now time.Time, tolerance time.Duration) bool {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || seconds < 0 || len(stamp) > 12 || strconv.FormatInt(seconds, 10) != stamp {
		return false
	}
	age := now.Unix() - seconds
	limit := int64(tolerance / time.Second)
	return -limit <= age && age <= limit
}

// match compares every signature with every key, in a time that does not depend
// on which of them match.
func match(keys, given [][]byte, prefix, body []byte) error {
	if len(given) > maxSignatures {
		return ErrProof
	}
	found := false
	for _, key := range keys {
		if len(key) == 0 {
			continue
		}
		want := Sum(key, prefix, body)
		for _, sum := range given {
			if hmac.Equal(want, sum) {
				found = true
			}
		}
	}
	if !found {
		return ErrProof
	}
	return nil
}
