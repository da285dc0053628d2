package audit

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/kitbackend/kit/internal/random"
)

// personal is the data of an event that identifies a person. It is stored apart from the event,
// with a salt, so that it can be erased and the event's hash stays valid.
type personal struct {
	IP, UserAgent string
	Salt          []byte
}

func (p personal) empty() bool { return p.IP == "" && p.UserAgent == "" }

// salted returns p with a random salt, without which the commitment to a guessable value would
// reveal it.
func (p personal) salted() personal {
	p.Salt = random.Bytes(16)
	return p
}

// commitment returns the commitment that represents the personal data in the content hash.
func (p personal) commitment() []byte {
	d := newDigest("kit/audit/personal/v1")
	d.bytes(p.Salt)
	d.text(p.IP, p.UserAgent)
	return d.sum()
}

// contentHash returns the hash of all stored fields of an event, in a fixed order, each prefixed by
// its length.
func contentHash(e Entry, targets string, commitment []byte) []byte {
	d := newDigest("kit/audit/event/v1")
	d.text(e.ID)
	d.number(e.OccurredAt.UnixMilli())
	d.text(e.Action, string(e.Actor.Kind), e.Actor.ID, e.Actor.KeyID, e.Subject.Type, e.Subject.ID, targets,
		string(e.Outcome), e.Code, e.RequestID, e.Route, e.Environment)
	d.bytes(e.Detail)
	d.bytes(commitment)
	return d.sum()
}

// sealHash returns the hash that chains an event's content hash to the previous seal.
func sealHash(shard, seq int64, eventID string, content, prev []byte) []byte {
	d := newDigest("kit/audit/seal/v1")
	d.number(shard, seq)
	d.text(eventID)
	d.bytes(content)
	d.bytes(prev)
	return d.sum()
}

// digest collects length-prefixed fields, so that no two lists of fields have the same hash.
type digest []byte

func newDigest(purpose string) digest {
	d := make(digest, 0, 512) // as much as most events take
	d.text(purpose)
	return d
}

func (d *digest) text(fields ...string) {
	for _, field := range fields {
		*d = append(binary.BigEndian.AppendUint32(*d, uint32(len(field))), field...)
	}
}

func (d *digest) number(fields ...int64) {
	for _, field := range fields {
		*d = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(*d, 8), uint64(field))
	}
}

func (d *digest) bytes(field []byte) {
	*d = append(binary.BigEndian.AppendUint32(*d, uint32(len(field))), field...)
}

// sum returns the SHA-256 of the fields.
func (d *digest) sum() []byte {
	hash := sha256.Sum256(*d)
	return hash[:]
}
