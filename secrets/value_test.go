package secrets_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/kitbackend/kit/secrets"
)

const canary = "canary-9b3e71"

// holder contains a value where formatting by reflection cannot call its methods.
type holder struct{ hidden secrets.Value }

// TestValuesDoNotPrint checks that no way of printing or encoding shows a value, alone or inside of
// another.
func TestValuesDoNotPrint(t *testing.T) {
	v := secrets.NewValue(canary)
	things := map[string]any{
		"value": v, "pointer": &v, "struct": struct{ V secrets.Value }{v}, "unexported": holder{v}, "to it": &holder{v},
		"slice": []secrets.Value{v}, "blocks": secrets.Blocks{"b": {"f": v}}, "stored": secrets.Stored{Payload: v},
		"any": []any{v, holder{v}}, "key": map[string]any{"v": v}, "error": fmt.Errorf("with %v", v),
	}
	for name, thing := range things {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T", "%20v", "%-5.3s", "%!"} {
			fmt.Fprintf(&out, verb, thing)
		}
		fmt.Fprintln(&out, thing)
		if encoded, err := json.Marshal(thing); err == nil {
			out.Write(encoded)
		}
		if encoded, err := xml.Marshal(thing); err == nil {
			out.Write(encoded)
		}
		_ = gob.NewEncoder(&out).Encode(thing)
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("logged", "thing", thing, slog.Group("g", slog.Any("thing", thing)))
		}
		func() {
			defer func() { fmt.Fprintf(&out, "%v %+v", recover(), thing) }()
			panic(thing)
		}()
		text := out.String()
		for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), strings.Trim(fmt.Sprintf("%d", []byte(canary)), "[]")} {
			if strings.Contains(text, form) {
				t.Errorf("%s: shows in %q", name, text)
			}
		}
	}
	if got := v.Reveal(); got != canary {
		t.Errorf("revealed %q", got)
	}
}

func TestValuesCompare(t *testing.T) {
	a, b := secrets.NewValue("a"), secrets.NewValue("b")
	if !a.Equal(secrets.NewValue("a")) || a.Equal(b) || a.Equal(secrets.Value{}) || !(secrets.Value{}).Equal(secrets.NewValue("")) {
		t.Error("not equal as their texts are")
	}
	if a.Empty() || !secrets.NewValue("").Empty() {
		t.Error("empty is not what it says")
	}
}

func TestValuesDecode(t *testing.T) {
	var v secrets.Value
	if err := json.Unmarshal([]byte(`"`+canary+`"`), &v); err != nil || v.Reveal() != canary {
		t.Errorf("%v", err)
	}
	for _, text := range []string{`7`, `["` + canary + `"]`, `"` + strings.Repeat("x", secrets.MaxValue+1) + `"`} {
		if err := json.Unmarshal([]byte(text), &v); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%.20s: %v", text, err)
		}
	}
}
