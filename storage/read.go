package storage

import (
	"context"
	"io"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage/bucket"
)

// Get returns an object that the caller may change, or a pending upload. Refuses with
// storage/not_found and storage/forbidden.
func (p Space) Get(ctx context.Context, ref Ref) (Object, error) { return p.owned(ctx, ref) }

// At returns the complete object at a path of an owner. Refuses with
// storage/not_found.
func (p Space) At(ctx context.Context, ownerID, path string) (Object, error) {
	path, err := checkPath(path)
	if err != nil {
		return Object{}, err
	}
	o, found, err := p.s.store.atPath(ctx, p.namespace, ownerID, path)
	if err == nil && !found {
		err = ErrNotFound
	}
	return o, err
}

// Open opens an object for reading; the caller closes it. Refuses with storage/not_found and
// storage/upload_incomplete.
func (p Space) Open(ctx context.Context, ref Ref) (Content, error) {
	return p.OpenRange(ctx, ref, 0, -1)
}

// OpenRange is Open for length bytes from an offset, or to the end if length is negative.
func (p Space) OpenRange(ctx context.Context, ref Ref, offset, length int64) (Content, error) {
	o, err := p.readable(ctx, ref)
	if err != nil {
		return Content{}, err
	}
	body, err := p.s.bucket.Open(ctx, o.key, offset, length)
	if err != nil {
		return Content{}, p.s.unread(ctx, o, err)
	}
	return Content{o, body}, nil
}

// unread returns why the bytes of an object cannot be read: it was just removed, or the bucket
// fails.
func (s *Storage) unread(ctx context.Context, o Object, err error) error {
	if !absent(err) {
		return unavailable(err)
	}
	if _, found, failed := s.store.object(ctx, o.Namespace, o.ID); failed == nil && !found {
		return ErrNotFound
	}
	return unavailable(err)
}

// maxSignTTL bounds the lifetime of a URL that reads.
const maxSignTTL = 24 * time.Hour

// Sign returns a URL that gives the object's bytes to anyone who has it, until it expires or the
// object is removed. Refuses with storage/not_found, storage/upload_incomplete and
// kit/invalid_request.
func (p Space) Sign(ctx context.Context, ref Ref, opts SignOptions) (Link, error) {
	o, err := p.readable(ctx, ref)
	if err != nil {
		return Link{}, err
	}
	return p.s.sign(ctx, o, opts)
}

// SignAll signs many objects by one query, at most [MaxBatch]. It omits missing and incomplete
// objects.
func (p Space) SignAll(ctx context.Context, ids []string, opts SignOptions) (map[string]Link, error) {
	if len(ids) > MaxBatch {
		return nil, capability.ErrInvalidRequest.Saying("At most %d objects at once.", MaxBatch)
	}
	objects, err := p.s.store.objects(ctx, p.namespace, ids)
	if err != nil {
		return nil, err
	}
	links := make(map[string]Link, len(objects))
	for _, o := range objects {
		if o.State != StateReady {
			continue
		}
		if links[o.ID], err = p.s.sign(ctx, o, opts); err != nil {
			return nil, err
		}
	}
	return links, nil
}

func (s *Storage) sign(ctx context.Context, o Object, opts SignOptions) (Link, error) {
	ttl := opts.TTL
	if ttl == 0 {
		ttl = SignTTL
	}
	if ttl < time.Second || ttl > maxSignTTL {
		return Link{}, capability.ErrInvalidRequest.Saying("A signed address is good for a second to a day.")
	}
	_, show := shown(o.ContentType)
	get := bucket.Get{ContentType: storedType(o.ContentType), Disposition: disposition(o.Path, show && !opts.Download)}
	signed, err := s.bucket.SignGet(ctx, o.key, get, ttl)
	if err != nil {
		return Link{}, unavailable(err)
	}
	return Link{URL: signed.URL, ExpiresAt: capability.Millis(s.host.Now().Add(ttl).UnixMilli())}, nil
}

// List lists an owner's complete objects by path. Refuses with
// kit/invalid_request.
func (p Space) List(ctx context.Context, f Filter, page capability.Page) (Listing, error) {
	page = page.Bounded()
	none := Listing{Items: []Object{}, Prefixes: []string{}}
	prefix, err := checkPrefix(f.Prefix)
	if err != nil {
		return none, err
	}
	var after string
	if _, err := page.After(&after); err != nil {
		return none, err
	}
	switch f.Delimiter {
	case "":
		objects, err := p.s.store.below(ctx, p.namespace, f.OwnerID, prefix, after, page.Limit+1)
		if err != nil {
			return none, err
		}
		items := capability.Paged(page, objects, func(o Object) []any { return []any{o.Path} })
		return Listing{Items: items.Items, Prefixes: []string{}, NextCursor: items.NextCursor}, nil
	case "/":
		return p.listFolder(ctx, f.OwnerID, prefix, after, page)
	default:
		return none, capability.ErrInvalidRequest.Saying("delimiter is a slash or absent.")
	}
}

func (p Space) listFolder(ctx context.Context, owner, prefix, after string, page capability.Page) (Listing, error) {
	listing := Listing{Items: []Object{}, Prefixes: []string{}}
	entries, err := p.s.store.folder(ctx, p.namespace, owner, prefix, after, page.Limit+1)
	if err != nil {
		return listing, err
	}
	items := capability.Paged(page, entries, func(e entry) []any { return []any{e.after()} })
	listing.NextCursor = items.NextCursor
	var paths []string
	for _, e := range items.Items {
		if e.prefix != "" {
			listing.Prefixes = append(listing.Prefixes, e.prefix)
		} else {
			paths = append(paths, e.path)
		}
	}
	if len(paths) > 0 {
		listing.Items, err = p.s.store.atPaths(ctx, p.namespace, owner, paths)
	}
	return listing, err
}

// seeker reads an object of a bucket without files: it opens the object at the offset of the first
// read.
type seeker struct {
	ctx    context.Context
	bucket bucket.Bucket
	key    string
	size   int64
	at     int64
	body   io.ReadCloser
	err    error
}

func (r *seeker) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset != r.at {
		r.close()
	}
	r.at = offset
	return offset, nil
}

func (r *seeker) Read(p []byte) (n int, err error) {
	if r.body == nil {
		if r.body, r.err = r.bucket.Open(r.ctx, r.key, r.at, -1); r.err != nil {
			return 0, r.err
		}
	}
	n, err = r.body.Read(p)
	r.at += int64(n)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

func (r *seeker) close() {
	if r.body != nil {
		_ = r.body.Close()
		r.body = nil
	}
}
