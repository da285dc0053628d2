package file

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbackend/kit/storage/bucket"
)

// plan is the content of the file plan.
type plan struct {
	Key      string `json:"key"`
	Size     int64  `json:"size"`
	PartSize int64  `json:"partSize"`
}

func (p plan) cut() bucket.Plan { return bucket.Plan{Size: p.Size, PartSize: p.PartSize} }

// An upload whose plan was renamed to closedName accepts no more bytes.
const (
	planName   = "plan"
	closedName = "closed"
	dataName   = "data"
	lockSuffix = ".lock"
)

// maxPlan bounds the size of a plan or a part's record, in bytes.
const maxPlan = 1 << 10

func uploadPath(upload string, name ...string) string {
	return path.Join(append([]string{"uploads", upload}, name...)...)
}

// Start implements [bucket.Bucket].
func (b *Bucket) Start(_ context.Context, key string, cut bucket.Plan) (string, error) {
	root, _, err := b.at(key)
	if err != nil {
		return "", err
	}
	upload := strings.ToLower(rand.Text())
	if err := root.Mkdir(uploadPath(upload), 0o700); err != nil {
		return "", err
	}
	data, err := root.OpenFile(uploadPath(upload, dataName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(data.Truncate(cut.Size), data.Close()); err != nil {
		return "", err
	}
	if err := b.record(root, uploadPath(upload, planName), plan{key, cut.Size, cut.PartSize}); err != nil {
		return "", err
	}
	return upload, b.syncDir(root, "uploads")
}

// record writes a small file atomically.
func (b *Bucket) record(root *os.Root, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temp := path.Join("tmp", strings.ToLower(rand.Text()))
	f, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, b.sync(f), f.Close(), missing(root.Rename(temp, name), bucket.ErrNoUpload)); err != nil {
		_ = root.Remove(temp)
		return err
	}
	return b.syncDir(root, path.Dir(name))
}

func read(root *os.Root, name string, into any) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPlan))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// upload finds an upload of a key; closed reports that its object is being made.
func (b *Bucket) upload(key, upload string) (root *os.Root, p plan, closed bool, err error) {
	root, _, err = b.at(key)
	if err != nil {
		return nil, p, false, err
	}
	if !bucket.ValidKey(upload) {
		return nil, p, false, bucket.ErrNoUpload
	}
	err = read(root, uploadPath(upload, planName), &p)
	if errors.Is(err, fs.ErrNotExist) {
		closed = true
		err = read(root, uploadPath(upload, closedName), &p)
	}
	if err != nil {
		return nil, p, false, missing(err, bucket.ErrNoUpload)
	}
	if p.Key != key {
		return nil, p, false, bucket.ErrNoUpload
	}
	return root, p, closed, nil
}

// Parts implements [bucket.Bucket].
func (b *Bucket) Parts(_ context.Context, key, upload string, after, limit int) ([]bucket.Part, error) {
	root, p, _, err := b.upload(key, upload)
	if err != nil {
		return nil, err
	}
	return stored(root, p, upload, after, limit)
}

func stored(root *os.Root, p plan, upload string, after, limit int) ([]bucket.Part, error) {
	list, err := names(root, uploadPath(upload))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range list {
		if n, err := strconv.Atoi(name); err == nil && n > after && n <= p.cut().Parts() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	parts := []bucket.Part{}
	for _, n := range numbers[:min(len(numbers), limit)] {
		var part bucket.Part
		err := read(root, uploadPath(upload, strconv.Itoa(n)), &part)
		if errors.Is(err, fs.ErrNotExist) {
			continue // being rewritten
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// putPart writes a part at its offset. Until it is complete, it counts as missing; writing stops
// once the upload is closed.
func (b *Bucket) putPart(ctx context.Context, key, upload string, number int, size int64, body io.Reader) (etag string, err error) {
	root, p, closed, err := b.upload(key, upload)
	if err == nil && (closed || number < 1 || number > p.cut().Parts() || size != p.cut().Part(number)) {
		err = bucket.ErrNoUpload
	}
	if err != nil {
		return "", err
	}
	mark := uploadPath(upload, strconv.Itoa(number))
	unlock, err := b.parts.lock(ctx, mark)
	if err != nil {
		return "", err
	}
	defer unlock()
	release, err := lockPart(ctx, root, mark+lockSuffix)
	if err != nil {
		return "", err
	}
	defer release()
	data, err := root.OpenFile(uploadPath(upload, dataName), os.O_WRONLY, 0)
	if err != nil {
		return "", missing(err, bucket.ErrNoUpload)
	}
	defer data.Close()
	open := func() error {
		_, err := root.Stat(uploadPath(upload, planName))
		return missing(err, bucket.ErrNoUpload)
	}
	to := &guarded{file: data, offset: int64(number-1) * p.PartSize, open: open}
	if err := to.locked(func() error { return missing(root.Remove(mark), nil) }); err != nil {
		return "", err
	}
	sum := crc32.New(castagnoli)
	n, err := copyChunks(io.MultiWriter(to, sum), body)
	switch {
	case err != nil:
		return "", err
	case n != size:
		return "", bucket.ErrLength
	}
	if err := b.sync(data); err != nil {
		return "", err
	}
	etag = `"` + hex.EncodeToString(sum.Sum(nil)) + `"`
	// The record is written under the lock, so that the parts which Complete has read do not
	// change.
	err = to.locked(func() error { return b.record(root, mark, bucket.Part{Number: number, Size: size, ETag: etag}) })
	return etag, err
}

// guarded writes to the data of an upload while the upload is open.
type guarded struct {
	file   *os.File
	offset int64
	open   func() error
}

func (g *guarded) locked(f func() error) error {
	if err := lockFile(g.file, false); err != nil {
		return err
	}
	defer unlockFile(g.file)
	if err := g.open(); err != nil {
		return err
	}
	return f()
}

func (g *guarded) Write(p []byte) (n int, err error) {
	err = g.locked(func() error {
		n, err = g.file.WriteAt(p, g.offset)
		g.offset += int64(n)
		return err
	})
	return n, err
}

// Complete implements [bucket.Bucket]. It copies nothing: the bytes are in place.
func (b *Bucket) Complete(_ context.Context, key, upload string, parts []bucket.Part) (info bucket.Info, err error) {
	root, p, closed, err := b.upload(key, upload)
	if err != nil {
		return info, err
	}
	data, err := root.OpenFile(uploadPath(upload, dataName), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) && closed {
		return b.completed(root, key, upload) // a killed process, or another node, published the object already
	}
	if err != nil {
		return info, missing(err, bucket.ErrNoUpload)
	}
	defer data.Close()
	if err := lockFile(data, true); err != nil {
		return info, err
	}
	defer unlockFile(data)
	if !closed {
		if err := b.close(root, p, upload, parts); err != nil {
			return info, err
		}
	}
	if err := b.sync(data); err != nil {
		return info, err
	}
	err = b.publish(root, uploadPath(upload, dataName), objectPath(key))
	if err != nil && !errors.Is(err, bucket.ErrExists) {
		return info, missing(err, bucket.ErrNoUpload)
	}
	return b.completed(root, key, upload)
}

// close ends the writing of parts, if all are stored and match the list.
func (b *Bucket) close(root *os.Root, p plan, upload string, parts []bucket.Part) error {
	have, err := stored(root, p, upload, 0, bucket.MaxParts)
	if err != nil {
		return err
	}
	if len(have) != p.cut().Parts() || len(parts) != len(have) {
		return bucket.ErrParts
	}
	for i, part := range parts {
		if have[i].Number != part.Number || have[i].ETag != part.ETag {
			return bucket.ErrParts
		}
	}
	err = root.Rename(uploadPath(upload, planName), uploadPath(upload, closedName))
	if err != nil {
		return missing(err, bucket.ErrNoUpload)
	}
	return b.syncDir(root, uploadPath(upload))
}

// completed removes the remains of an upload whose object is in place.
func (b *Bucket) completed(root *os.Root, key, upload string) (bucket.Info, error) {
	info, err := head(root, objectPath(key))
	if err != nil {
		return info, bucket.ErrNoUpload
	}
	return info, root.RemoveAll(uploadPath(upload))
}

// Abort implements [bucket.Bucket]. It also removes an upload without a plan, under any key.
func (b *Bucket) Abort(_ context.Context, key, upload string) error {
	root, err := b.open()
	if err != nil || !bucket.ValidKey(upload) {
		return err
	}
	if _, _, _, err := b.upload(key, upload); errors.Is(err, bucket.ErrNoUpload) {
		for _, name := range []string{planName, closedName} {
			if _, err := root.Stat(uploadPath(upload, name)); err == nil {
				return nil // the upload of another key
			}
		}
	}
	if err := missing(root.Remove(uploadPath(upload, planName)), nil); err != nil {
		return err
	}
	return root.RemoveAll(uploadPath(upload))
}

// Uploads implements [bucket.Bucket]. An upload without a plan was interrupted as it started or
// ended; its key is then "".
func (b *Bucket) Uploads(_ context.Context, cursor string, limit int) (uploads []bucket.Upload, next string, err error) {
	root, err := b.open()
	if err != nil {
		return nil, "", err
	}
	list, err := names(root, "uploads")
	if err != nil {
		return nil, "", err
	}
	for _, upload := range list {
		if upload <= cursor {
			continue
		}
		if len(uploads) == limit {
			return uploads, uploads[limit-1].ID, nil
		}
		stat, err := root.Stat(uploadPath(upload))
		if err != nil {
			continue
		}
		var p plan
		if errors.Is(read(root, uploadPath(upload, planName), &p), fs.ErrNotExist) {
			_ = read(root, uploadPath(upload, closedName), &p)
		}
		uploads = append(uploads, bucket.Upload{Key: p.Key, ID: upload, StartedAt: stat.ModTime().UTC()})
	}
	return uploads, "", nil
}

// errStalled reports a body that comes too slowly.
var errStalled = fmt.Errorf("%w: it stopped coming", bucket.ErrLength)
