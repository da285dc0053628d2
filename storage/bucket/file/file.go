// Package file is the bucket in a directory. The kit serves its signed URLs.
//
//	objects/ab/<key>       the objects, each written once and never changed
//	uploads/<id>/plan      the key and the plan of an open multipart upload
//	uploads/<id>/data      its bytes, each part written at its offset
//	uploads/<id>/<number>  the size and checksum of a stored part; with .lock the file
//	                       that is locked by the process which writes the part
//	tmp/                   writes in progress
//
// An object appears under its key by one atomic operation of the file system once its bytes are on
// disk, so the process may be killed at any point. Several processes may share the directory if the
// file system has locks.
package file

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/internal/random"
	"github.com/kitbackend/kit/storage/bucket"
)

// Bucket stores objects in a directory.
type Bucket struct {
	dir     string
	open    func() (*os.Root, error)
	serving bucket.Serving
	parts   keyed

	mu   sync.Mutex
	root *os.Root
	temp string
}

var (
	_ bucket.Served = (*Bucket)(nil)
	_ bucket.Filed  = (*Bucket)(nil)
)

// New returns the bucket in a directory, which is created at its first use. If dir is "", it is a
// temporary one that Close removes.
func New(dir string) *Bucket {
	b := &Bucket{dir: dir}
	b.open = sync.OnceValues(b.prepare)
	key := random.Bytes(sha256.Size)
	b.serving = bucket.Serving{
		Now:     time.Now,
		Current: func(context.Context) (byte, []byte, error) { return 1, key, nil },
		Find:    func(context.Context, byte) ([]byte, error) { return key, nil },
	}
	return b
}

// Name returns "file".
func (b *Bucket) Name() string { return "file" }

// Temporary reports whether Close removes the objects.
func (b *Bucket) Temporary() bool { return b.dir == "" }

// Attach implements [bucket.Served].
func (b *Bucket) Attach(s bucket.Serving) { b.serving = s }

func (b *Bucket) prepare() (*os.Root, error) {
	dir := b.dir
	if dir == "" {
		temp, err := os.MkdirTemp("", "kit-storage")
		if err != nil {
			return nil, err
		}
		dir = temp
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"objects", "uploads", "tmp"} {
		if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(err, root.Close())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.root = root
	if b.Temporary() {
		b.temp = dir
	}
	return root, nil
}

// Close closes the directory, and removes it if it is temporary.
func (b *Bucket) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.root == nil {
		return nil
	}
	err := b.root.Close()
	if b.temp != "" {
		err = errors.Join(err, os.RemoveAll(b.temp))
	}
	b.root = nil
	return err
}

// shards is the number of leading letters of a key that name its directory.
const shards = 2

func objectPath(key string) string { return path.Join("objects", key[:shards], key) }

// at returns the root and the path of a key. Only valid keys become paths.
func (b *Bucket) at(key string) (*os.Root, string, error) {
	if !bucket.ValidKey(key) {
		return nil, "", fmt.Errorf("%w: %q is not a key", bucket.ErrNotFound, key)
	}
	root, err := b.open()
	return root, objectPath(key), err
}

// missing replaces the file system's error for a missing file by absent.
func missing(err, absent error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return absent
	}
	return err
}

// File implements [bucket.Filed].
func (b *Bucket) File(_ context.Context, key string) (*os.File, error) {
	root, name, err := b.at(key)
	if err != nil {
		return nil, err
	}
	f, err := root.Open(name)
	return f, missing(err, bucket.ErrNotFound)
}

// Open implements [bucket.Bucket].
func (b *Bucket) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	f, err := b.File(ctx, key)
	if err != nil {
		return nil, err
	}
	if length < 0 && offset == 0 {
		return f, nil
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if length < 0 {
		return f, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, length), f}, nil
}

// Head implements [bucket.Bucket].
func (b *Bucket) Head(_ context.Context, key string) (bucket.Info, error) {
	root, name, err := b.at(key)
	if err != nil {
		return bucket.Info{}, err
	}
	return head(root, name)
}

func head(root *os.Root, name string) (bucket.Info, error) {
	stat, err := root.Stat(name)
	if err != nil {
		return bucket.Info{}, missing(err, bucket.ErrNotFound)
	}
	return bucket.Info{Size: stat.Size(), ModifiedAt: stat.ModTime().UTC()}, nil
}

// Put implements [bucket.Bucket].
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, size int64, _ string) (bucket.Info, error) {
	return b.write(ctx, key, func(f *os.File) error {
		n, err := io.Copy(f, contextReader{ctx, r})
		if err == nil && size >= 0 && n != size {
			err = bucket.ErrLength
		}
		return err
	})
}

// Copy implements [bucket.Bucket]. The operating system copies, by reference where it can.
func (b *Bucket) Copy(ctx context.Context, from, to, _ string) (bucket.Info, error) {
	source, err := b.File(ctx, from)
	if err != nil {
		return bucket.Info{}, err
	}
	defer source.Close()
	return b.write(ctx, to, func(f *os.File) error {
		var err error
		for err == nil && ctx.Err() == nil { // the system call does not observe ctx
			_, err = io.CopyN(f, source, copyStep)
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return cmp.Or(err, ctx.Err())
	})
}

// copyStep is how many bytes are copied between two checks of the context.
const copyStep = 64 << 20

// write makes an object of what fill writes. If it fails, no object exists.
func (b *Bucket) write(_ context.Context, key string, fill func(*os.File) error) (info bucket.Info, err error) {
	root, name, err := b.at(key)
	if err != nil {
		return info, err
	}
	temp := path.Join("tmp", strings.ToLower(rand.Text()))
	f, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return info, err
	}
	defer func() { _ = root.Remove(temp) }()
	if err := errors.Join(fill(f), b.sync(f), f.Close()); err != nil {
		return info, err
	}
	if err := b.publish(root, temp, name); err != nil {
		return info, err
	}
	return head(root, name)
}

// publish links a written file as an object, unless the object exists.
func (b *Bucket) publish(root *os.Root, temp, name string) error {
	dir := path.Dir(name)
	if err := root.Mkdir(dir, 0o700); err == nil {
		if err := b.syncDir(root, "objects"); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := root.Link(temp, name); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return bucket.ErrExists
		}
		return err
	}
	return b.syncDir(root, dir)
}

// sync waits until a file is on disk; a temporary bucket needs no sync.
func (b *Bucket) sync(f *os.File) error {
	if b.Temporary() {
		return nil
	}
	return f.Sync()
}

func (b *Bucket) syncDir(root *os.Root, name string) error {
	if b.Temporary() {
		return nil
	}
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Delete implements [bucket.Bucket].
func (b *Bucket) Delete(_ context.Context, keys ...string) error {
	for _, key := range keys {
		root, name, err := b.at(key)
		if err == nil {
			err = root.Remove(name)
		}
		if missing(err, bucket.ErrNotFound) != nil && !errors.Is(missing(err, bucket.ErrNotFound), bucket.ErrNotFound) {
			return err
		}
	}
	return nil
}

// List implements [bucket.Bucket].
func (b *Bucket) List(ctx context.Context, after string, limit int) ([]bucket.Object, error) {
	root, err := b.open()
	if err != nil {
		return nil, err
	}
	folders, err := names(root, "objects")
	if err != nil {
		return nil, err
	}
	var list []bucket.Object
	for _, folder := range folders {
		if len(after) >= shards && folder < after[:shards] {
			continue
		}
		keys, err := names(root, path.Join("objects", folder))
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if key <= after || !bucket.ValidKey(key) {
				continue
			}
			info, err := head(root, objectPath(key))
			if errors.Is(err, bucket.ErrNotFound) {
				continue // removed concurrently
			}
			if err != nil {
				return nil, err
			}
			list = append(list, bucket.Object{Key: key, Info: info})
			if len(list) == limit {
				return list, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// names lists a directory in order. A directory that does not exist, or that another process
// removes concurrently, is empty.
func names(root *os.Root, dir string) (list []string, err error) {
	f, err := root.Open(dir)
	if err == nil {
		defer f.Close()
		list, err = f.Readdirnames(-1)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(list)
	return list, err
}

// Tidy implements [bucket.Bucket].
func (b *Bucket) Tidy(ctx context.Context, before time.Time) error {
	root, err := b.open()
	if err != nil {
		return err
	}
	list, err := names(root, "tmp")
	if err != nil {
		return err
	}
	for _, name := range list {
		name = path.Join("tmp", name)
		stat, err := root.Stat(name)
		if err != nil || stat.ModTime().After(before) {
			continue
		}
		if err := missing(root.Remove(name), nil); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// contextReader fails once its context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// keyed is a set of locks by name.
type keyed struct {
	mu    sync.Mutex
	locks map[string]*keyedLock
}

type keyedLock struct {
	held    chan struct{}
	waiting int
}

// lock waits for the lock of a name; calling unlock releases it.
func (k *keyed) lock(ctx context.Context, name string) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = make(map[string]*keyedLock)
	}
	l := k.locks[name]
	if l == nil {
		l = &keyedLock{held: make(chan struct{}, 1)}
		k.locks[name] = l
	}
	l.waiting++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.waiting--; l.waiting == 0 {
			delete(k.locks, name)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, cmp.Or(context.Cause(ctx), ctx.Err())
	}
}
