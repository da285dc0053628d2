package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
)

// exportPage bounds what an export holds in memory.
const exportPage = 500

// line is an event as an export shows it: with what its hashes are over, so
// that the export can be verified on its own.
type line struct {
	Entry
	Commitment []byte `json:"commitment,omitempty"`
	Salt       []byte `json:"salt,omitempty"`
	Hash       []byte `json:"hash"`
	Seal       *Seal  `json:"seal,omitempty"`
}

// Export writes the events a filter selects as NDJSON, oldest first, one object
// a line, and returns how many. It holds one page of them in memory, whatever
// their number. Hashes are base64.
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
