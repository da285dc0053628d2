package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
)

// exportPage limits the events that an export holds in memory.
const exportPage = 500

// line is an event in an export, with the inputs of its hashes, so that the export can be verified
// on its own.
type line struct {
	Entry
	Commitment []byte `json:"commitment,omitempty"`
	Salt       []byte `json:"salt,omitempty"`
	Hash       []byte `json:"hash"`
	Seal       *Seal  `json:"seal,omitempty"`
}

// Export writes the events that a filter selects as NDJSON, oldest first, one object per line, and
// returns how many. It holds one page of them in memory at a time. Hashes are base64.
func (a *Audit) Export(ctx context.Context, w io.Writer, f Filter) (written int64, err error) {
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	for after := ""; ; {
		page, err := a.store.export(ctx, f, after, exportPage)
		if err != nil {
			return written, err
		}
		for _, e := range page {
			if err := e.parseTargets(); err != nil {
				return written, err
			}
			if err := encoder.Encode(line{e.Entry, e.commitment, e.salt, e.Hash, e.seal}); err != nil {
				return written, err
			}
			written++
			after = e.ID
		}
		if err := out.Flush(); err != nil || len(page) < exportPage {
			return written, err
		}
	}
}
