package rating

import (
	"fmt"
	"strings"
	"testing"
)

// TestTexts checks that the cache of valid states is bounded by its bytes, and that a text longer
// than the bound is not kept with others.
func TestTexts(t *testing.T) {
	var known texts
	for i := range 100 {
		text := strings.Repeat("x", maxTexts/10) + fmt.Sprint(i)
		if known.has(text) {
			t.Error("known before it was seen", i)
		}
		if known.add(text); !known.has(text) {
			t.Error("forgotten at once", i)
		}
		bytes := 0
		for text := range known.among {
			bytes += len(text) + textOverhead
		}
		if bytes != known.bytes || bytes > maxTexts {
			t.Fatalf("%d bytes, counted as %d", bytes, known.bytes)
		}
	}
	if known.add(strings.Repeat("x", 2*maxTexts)); len(known.among) != 1 {
		t.Errorf("%d texts", len(known.among))
	}
}
