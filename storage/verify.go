package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbackend/kit/storage/bucket"
)

// MaxFindings bounds the findings in a [Report].
const MaxFindings = 100

// Report is the result of [Storage.Verify].
type Report struct {
	// Objects is the number of complete objects that were checked.
	Objects int64
	// Findings is empty if every object has its bytes.
	Findings []Finding
}

// Finding is one object that differs from its row.
type Finding struct {
	// Object is the ID of the object.
	Object string
	Reason string
}

// Verify checks every complete object against the bucket: its bytes exist and have the size of the
// row. It changes nothing, reads no bytes, and may run during uploads and deletions.
func (s *Storage) Verify(ctx context.Context) (Report, error) {
	var report Report
	for after := ""; ; {
		rows, err := s.store.readyBetween(ctx, after, highest, s.host.Now().UnixMilli()+1, chunk)
		if err != nil {
			return report, err
		}
		for _, o := range rows {
			after = o.key
			reason, err := s.held(ctx, o)
			if err != nil {
				return report, fmt.Errorf("storage: verify: %w", err)
			}
			report.Objects++
			if reason != "" && len(report.Findings) < MaxFindings {
				report.Findings = append(report.Findings, Finding{o.ID, reason})
			}
		}
		if len(rows) < chunk {
			return report, nil
		}
	}
}

// held returns what is wrong with an object, or "".
func (s *Storage) held(ctx context.Context, o Object) (reason string, err error) {
	info, err := s.bucket.Head(ctx, o.key)
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		// A deletion after the row was read is not a fault.
		if _, found, err := s.store.byKey(ctx, o.key); err != nil || !found {
			return "", err
		}
		return "its bytes are not in the bucket", nil
	case err != nil:
		return "", err
	case info.Size != o.Size:
		return fmt.Sprintf("the bucket has %d bytes of it, its row says %d", info.Size, o.Size), nil
	default:
		return "", nil
	}
}
