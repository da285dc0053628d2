// Package validate checks the golden document with an independent validator. It is a separate
// module, so that the kit does not depend on it.
package validate

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func TestGoldenDocumentIsValid(t *testing.T) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromFile("../../testdata/openapi.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(loader.Context); err != nil {
		t.Error(err)
	}
	if doc.Paths.Len() == 0 {
		t.Error("the document has no path")
	}
}
