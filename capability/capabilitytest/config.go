package capabilitytest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/kitbackend/kit/capability"
)

// Hidden is the place of a field that no key of the manifest may show.
const Hidden = ""

// units may follow the name of a field in its key.
var units = []string{"Seconds", "Ms", "Days", "Hours", "Bytes"}

// Config holds the keys of a capability's manifest to the exported fields of its
// configuration, a struct. A field is shown by the key of its name, with a unit
// (retention: retentionSeconds), a part (copy: copy.maxBody), or a prefix that all
// its keys share. Elsewhere lists the fields that other keys show, by the beginnings of
// those keys with spaces between, or [Hidden].
// Every field must be shown and every key must show a field.
func Config(t testing.TB, config any, keys []capability.ConfigKey, prefix string, elsewhere map[string]string) {
	t.Helper()
	shown := make(map[string]bool)
	fields := reflect.TypeOf(config)
	for i := range fields.NumField() {
		field := fields.Field(i)
		if !field.IsExported() {
			continue
		}
		place, listed := elsewhere[field.Name]
		if listed && place == Hidden {
			continue
		}
		found := false
		for _, key := range keys {
			if shows(strings.TrimPrefix(key.Key, prefix), field.Name, place) {
				found, shown[key.Key] = true, true
			}
		}
		if !found {
			t.Errorf("%v: no key of the manifest shows %s", fields, field.Name)
		}
	}
	for name := range elsewhere {
		if _, ok := fields.FieldByName(name); !ok {
			t.Errorf("%v has no field %s", fields, name)
		}
	}
	for _, key := range keys {
		if strings.HasPrefix(key.Key, prefix) && !shown[key.Key] {
			t.Errorf("%v: the key %s shows no field", fields, key.Key)
		}
	}
}

// shows reports whether a key is that of a field, or begins with one of the places
// given for it.
func shows(key, field, place string) bool {
	if place != "" {
		return slices.ContainsFunc(strings.Fields(place), func(begin string) bool { return strings.HasPrefix(key, begin) })
	}
	if len(key) < len(field) || !strings.EqualFold(key[:len(field)], field) {
		return false
	}
	rest := key[len(field):]
	next, _ := utf8.DecodeRuneInString(rest)
	return rest == "" || next == '.' || unicode.IsUpper(next) && slices.Contains(units, rest)
}
