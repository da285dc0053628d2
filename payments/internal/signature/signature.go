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
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/internal/proof"
)

// maxSignatures bounds how many signatures of one delivery are compared.
const maxSignatures = 16

// Header describes a header with a timestamp and signatures in hex, such as
// "t=1700000000,v1=5257a8".
type Header struct {
	// Name is the header's, Separator stands between its members.
	Name, Separator string
	// Time and Signature are the names of the two members that count; others are
	// ignored. Between timestamp and body the signed text has Joint.
	Time, Signature, Joint string
}

// Verify returns an error, which says why, unless one of the signatures was made with one of the
// keys at most tolerance before or after now. Keys that are empty never match.
func (f Header) Verify(h http.Header, body []byte, keys [][]byte, now time.Time, tolerance time.Duration) error {
	header, err := proof.Header(h, f.Name)
	if err != nil {
		return err
	}
	var stamp string
	var given [][]byte
	for member := range strings.SplitSeq(header, f.Separator) {
		name, value, _ := strings.Cut(strings.TrimSpace(member), "=")
		switch name {
		case f.Time:
			if stamp != "" {
				return fmt.Errorf("the header %s has two timestamps", f.Name)
			}
			stamp = value
		case f.Signature:
			if sum, err := hex.DecodeString(value); err == nil && len(sum) == sha256.Size {
				given = append(given, sum)
			}
		}
	}
	if err := proof.Fresh(stamp, now, tolerance); err != nil {
		return err
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

// Standard returns the id of a delivery, which is part of what is signed. It returns an error, which
// says why, unless the delivery is signed as Standard Webhooks has it, with one of the keys at most
// tolerance before or after now.
func Standard(h http.Header, body []byte, keys [][]byte, now time.Time, tolerance time.Duration) (id string, err error) {
	id, stamp, signatures, err := proof.Standard(h, "Webhook")
	if err != nil {
		return "", err
	}
	if strings.Contains(id, ".") {
		return "", fmt.Errorf("the header %s has a dot", StandardID)
	}
	if err := proof.Fresh(stamp, now, tolerance); err != nil {
		return "", err
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

// match compares every signature with every key, in a time that does not depend
// on which of them match.
func match(keys, given [][]byte, prefix, body []byte) error {
	switch {
	case len(given) == 0:
		return errors.New("there is no signature that can be read")
	case len(given) > maxSignatures:
		return fmt.Errorf("there are more than %d signatures", maxSignatures)
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
		return proof.ErrUnmatched
	}
	return nil
}
