package merchanta

import (
	_ "embed"
	"encoding/json"
	"testing"
)

//go:embed testdata/signature.json
var vector []byte

type signed struct {
	Header    string `json:"header"`
	Timestamp int64  `json:"timestamp"`
	Secret    string `json:"secret"`
	Body      string `json:"body"`
}

func published(t *testing.T) (v signed) {
	t.Helper()
	if err := json.Unmarshal(vector, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
