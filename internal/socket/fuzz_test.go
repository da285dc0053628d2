package socket

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/kitbackend/kit/internal/budget"
)

// FuzzFrame reads any frame: what is taken has a type, a short id and is valid
// text, and its refusal quotes little of it.
func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"type":"action","id":"7","action":{"move":[1,2]}}`))
	f.Add([]byte(`{"type":"","id":7}`))
	f.Add([]byte(`{"type":"a","type":"b"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		budget.Hold(t, len(raw), func() {
			frame, err := parse(raw)
			if err != nil {
				return
			}
			if !json.Valid(raw) || !utf8.Valid(raw) || frame.Type == "" || len(frame.ID) > maxID {
				t.Fatalf("took %q as %q %q", raw, frame.Type, frame.ID)
			}
			if text := frame.Unknown().Error(); len(text) > 300 || !utf8.ValidString(text) {
				t.Fatalf("the refusal of %q is %q", raw, text)
			}
			var into struct {
				Type   string          `json:"type"`
				ID     string          `json:"id"`
				Action json.RawMessage `json:"action"`
			}
			_ = frame.Decode(&into)
		})
	})
}
