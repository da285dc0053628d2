package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

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
	return d.Sum(nil)
}

// contentHash returns the hash of all stored fields of an event, in a fixed order, each prefixed by
// its length.
func contentHash(e Entry, targets string, commitment []byte) []byte {
	d := newDigest("kit/audit/event/v1")
	d.text(e.ID)
	d.number(e.OccurredAt.UnixMilli())
	d.text(e.Action, string(e.Actor.Kind), e.Actor.ID, e.Actor.KeyID, e.Subject.Type, e.Subject.ID, targets,
		string(e.Outcome), e.Code, e.RequestID, e.Route, e.Environment, string(e.Detail))
	d.bytes(commitment)
	return d.Sum(nil)
}

// sealHash returns the hash that chains an event's content hash to the previous seal.
func sealHash(shard, seq int64, eventID string, content, prev []byte) []byte {
	d := newDigest("kit/audit/seal/v1")
	d.number(shard, seq)
	d.text(eventID)
	d.bytes(content)
	d.bytes(prev)
	return d.Sum(nil)
}

// digest is SHA-256 over length-prefixed fields.
type digest struct{ hash.Hash }

func newDigest(purpose string) digest {
	d := digest{sha256.New()}
	d.text(purpose)
	return d
}

func (d digest) text(fields ...string) {
	for _, field := range fields {
		d.bytes([]byte(field))
	}
}

func (d digest) number(fields ...int64) {
	for _, field := range fields {
		d.bytes(binary.BigEndian.AppendUint64(nil, uint64(field)))
	}
}

func (d digest) bytes(field []byte) {
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(field)))
	d.Write(size[:])
	d.Write(field)
}
