package secrets

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
)

// MaxValue is the maximum size of a value, in bytes.
const MaxValue = 16 << 10

const redacted = "[redacted]"

var errValue = errors.New("secrets: a value is a text of at most 16 KiB")

// Value is a confidential string. Only [Value.Reveal] returns it: printed with any verb, logged, or
// encoded in any way it is "[redacted]". Values are compared with [Value.Equal]; the operator ==
// does not compile.
type Value struct{ reveal func() string } // a func, so that printing by reflection shows only an address

// NewValue returns a value of a text.
func NewValue(text string) Value {
	if text == "" {
		return Value{}
	}
	return Value{func() string { return text }}
}

// Reveal returns the text. Do not store it: a rotation replaces it.
func (v Value) Reveal() string {
	if v.reveal == nil {
		return ""
	}
	return v.reveal()
}

// Empty reports whether the text is empty, which is the same as no value.
func (v Value) Empty() bool { return v.reveal == nil }

// Equal reports whether the texts are equal, in a time that does not depend on where they differ.
func (v Value) Equal(other Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(other.Reveal())) == 1
}

// String returns "[redacted]".
func (v Value) String() string { return redacted }

// GoString returns "[redacted]".
func (v Value) GoString() string { return redacted }

// Format writes "[redacted]" for every verb.
func (v Value) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// MarshalJSON returns "[redacted]".
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns "[redacted]".
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// GobEncode returns "[redacted]".
func (v Value) GobEncode() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalJSON decodes a text of at most [MaxValue] bytes; its error does not quote the text.
func (v *Value) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil || len(text) > MaxValue {
		return errValue
	}
	*v = NewValue(text)
	return nil
}

// Fields are the values of a block by field name.
type Fields map[string]Value

// Blocks are the fields of a secret by block name. In a change, a nil block is removed.
type Blocks map[string]Fields

// encode returns blocks as providers store them: a JSON object of objects of strings.
func (b Blocks) encode(rotation string) Value {
	plain := make(map[string]map[string]string, len(b)+1)
	for name, fields := range b {
		plain[name] = make(map[string]string, len(fields))
		for field, value := range fields {
			plain[name][field] = value.Reveal()
		}
	}
	if rotation != "" {
		plain[rotationBlock] = map[string]string{"id": rotation}
	}
	text, err := json.Marshal(plain)
	if err != nil {
		panic("secrets: texts always encode") // and err could quote one
	}
	return NewValue(string(text))
}

// rotationBlock is the block of a pending version that contains the id of its rotation.
const rotationBlock = "rotation"

// decode decodes blocks that encode returned, or that an operator wrote to a provider by hand.
func decode(payload Value) (blocks Blocks, rotation string, err error) {
	if err := json.Unmarshal([]byte(payload.Reveal()), &blocks); err != nil || blocks == nil {
		return nil, "", errors.New("secrets: the stored secret is not an object of blocks of texts")
	}
	rotation = blocks[rotationBlock]["id"].Reveal()
	delete(blocks, rotationBlock)
	for name, fields := range blocks {
		for field, value := range fields {
			if value.Empty() {
				delete(fields, field)
			}
		}
		if len(fields) == 0 {
			delete(blocks, name)
		}
	}
	return blocks, rotation, nil
}

// equal reports whether both have the same values.
func (b Blocks) equal(other Blocks) bool { return b.encode("").Equal(other.encode("")) }

// merge returns the blocks after a change: given ones are replaced, nil ones removed, all others
// kept.
func (b Blocks) merge(change Blocks) Blocks {
	merged := make(Blocks, len(b)+len(change))
	maps.Copy(merged, b)
	for name, fields := range change {
		if fields == nil {
			delete(merged, name)
			continue
		}
		merged[name] = fields
	}
	return merged
}

// tidy removes empty values, which are the same as none.
func (b Blocks) tidy() Blocks {
	tidy := make(Blocks, len(b))
	for name, fields := range b {
		if fields == nil {
			tidy[name] = nil
			continue
		}
		tidy[name] = make(Fields, len(fields))
		for field, value := range fields {
			if !value.Empty() {
				tidy[name][field] = value
			}
		}
	}
	return tidy
}

// split separates a change into the given blocks and the names of the removed ones.
func (b Blocks) split() (given Blocks, removed []string) {
	given = make(Blocks, len(b))
	for name, fields := range b {
		if fields == nil {
			removed = append(removed, name)
		} else {
			given[name] = fields
		}
	}
	slices.Sort(removed)
	return given, removed
}
