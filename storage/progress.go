package storage

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage/bucket"
)

// pageOfParts is the most parts in one response.
const pageOfParts = 1000

// Progress returns the stored parts of an upload and new URLs for the missing ones, at most 1,000
// parts at a time, which is also the limit of the zero Page. Refuses with storage/not_found, also
// when the object is complete, and storage/forbidden.
func (p Space) Progress(ctx context.Context, ref Ref, page capability.Page) (Progress, error) {
	var none Progress
	o, err := p.pending(ctx, ref)
	if err != nil {
		return none, err
	}
	var after int64
	if _, err := page.After(&after); err != nil {
		return none, err
	}
	if !o.multipart() {
		return p.s.singleProgress(ctx, o)
	}
	if o.uploadID == "" {
		return none, ErrUploadIncomplete.Saying("The upload is being opened. Try again.")
	}
	if page.Limit < 1 || page.Limit > pageOfParts {
		page.Limit = pageOfParts
	}
	count := o.plan().Parts()
	if after < 0 || after > int64(count) {
		return none, capability.ErrInvalidRequest.Saying("The cursor is not one of this list.")
	}
	stored, err := p.s.bucket.Parts(ctx, o.key, o.uploadID, int(after), page.Limit)
	if errors.Is(err, bucket.ErrNoUpload) {
		stored, err = p.s.assembled(ctx, o, int(after))
	}
	if err != nil {
		return none, unavailable(err)
	}
	progress := Progress{Mode: ModeMultipart, UploadID: &o.uploadID, PartSize: o.partSize, PartCount: count,
		Stored: []bucket.Part{}, Missing: []PartURL{}, ExpiresAt: p.s.uploadEnd(o)}
	var numbers []int
	for n := int(after) + 1; n <= min(count, int(after)+page.Limit+1); n++ {
		numbers = append(numbers, n)
	}
	listed := capability.Paged(page, numbers, func(n int) []any { return []any{int64(n)} })
	progress.NextCursor = listed.NextCursor
	for _, n := range listed.Items {
		if len(stored) > 0 && stored[0].Number == n {
			progress.Stored, stored = append(progress.Stored, stored[0]), stored[1:]
			continue
		}
		part, err := p.s.partURL(ctx, o, n)
		if err != nil {
			return none, unavailable(err)
		}
		progress.Missing = append(progress.Missing, part)
	}
	return progress, nil
}

// assembled lists the parts after a number of an upload that is unknown to the bucket: all of them
// if the object was made but not committed, otherwise none.
func (s *Storage) assembled(ctx context.Context, o Object, after int) (parts []bucket.Part, err error) {
	switch err := s.arrived(ctx, o); {
	case errors.Is(err, ErrUploadIncomplete):
		return nil, nil
	case err != nil:
		return nil, err
	}
	for n := after + 1; n <= o.plan().Parts(); n++ {
		parts = append(parts, bucket.Part{Number: n, Size: o.plan().Part(n), ETag: o.ETag})
	}
	return parts, nil
}

func (s *Storage) singleProgress(ctx context.Context, o Object) (Progress, error) {
	progress := Progress{Mode: ModeSingle, PartSize: o.Size, PartCount: 1, Stored: []bucket.Part{}, Missing: []PartURL{}, ExpiresAt: s.uploadEnd(o)}
	_, err := s.bucket.Head(ctx, o.key)
	switch {
	case err == nil:
		progress.Stored = append(progress.Stored, bucket.Part{Number: 1, Size: o.Size, ETag: o.ETag})
		return progress, nil
	case !absent(err):
		return progress, unavailable(err)
	}
	if s.served == nil {
		pending, err := s.store.setWritable(ctx, o.ID, s.uploadEnd(o).UnixMilli())
		if err != nil {
			return progress, err
		}
		if !pending {
			return progress, ErrNotFound
		}
	}
	signed, err := s.signPut(ctx, o)
	if err != nil {
		return progress, unavailable(err)
	}
	progress.Missing = append(progress.Missing, PartURL{PartNumber: 1, Size: o.Size, URL: signed.URL, Headers: signed.Header})
	return progress, nil
}
