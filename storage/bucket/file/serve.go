package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/storage/bucket"
)

const chunk = 256 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// Serve implements [bucket.Served]: a PUT of an object or of a part, or a GET or HEAD. The caller
// has set the headers that protect the response, and limits the time that a body may take, as the
// kit does for every request.
func (b *Bucket) Serve(w http.ResponseWriter, r *http.Request, token string) error {
	c, err := b.verify(r.Context(), token, r.URL.RawQuery)
	if err != nil {
		return err
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case reads && c.purpose == purposeGet:
		return b.serveGet(w, r, c)
	case r.Method == http.MethodPut && c.purpose != purposeGet:
		return b.servePut(w, r, c)
	default:
		return bucket.ErrDenied
	}
}

func (b *Bucket) serveGet(w http.ResponseWriter, r *http.Request, c claims) error {
	f, err := b.File(r.Context(), c.key)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", c.parameter.Get("type"))
	w.Header().Set("Content-Disposition", c.parameter.Get("disposition"))
	return SendFile(w, r, f, ETag(c.key))
}

// ETag identifies the bytes under a key, which never change, without revealing the key.
func ETag(key string) string {
	sum := sha256.Sum256([]byte(key))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// SendFile responds with a file: with a single range if requested, only with headers for HEAD, and
// with 304 to a client that has the file. The operating system sends the bytes if the connection
// supports it.
func SendFile(w http.ResponseWriter, r *http.Request, f *os.File, etag string) error {
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	Send(w, r, f, etag, stat.ModTime())
	return nil
}

// Send is SendFile for any content.
func Send(w http.ResponseWriter, r *http.Request, content io.ReadSeeker, etag string, modified time.Time) {
	w.Header().Set("ETag", etag)
	w.Header().Set("Accept-Ranges", "bytes")
	if ranges := r.Header["Range"]; len(ranges) > 0 {
		unit, set, _ := strings.Cut(ranges[0], "=")
		r = r.Clone(r.Context())
		switch {
		case r.Method != http.MethodGet || !strings.EqualFold(unit, "bytes"):
			r.Header.Del("Range") // ignored, as RFC 9110 requires
		case len(ranges) > 1 || strings.Contains(set, ","):
			r.Header.Del("Range") // many small ranges cost more than the whole file
		case strings.HasPrefix(set, "-") && strings.Trim(set[1:], "0 ") == "":
			r.Header.Set("Range", "bytes=none") // the last zero bytes: refused, as RFC 9110 requires
		default:
			r.Header.Set("Range", "bytes="+set) // net/http accepts the unit only in lower case
		}
	}
	http.ServeContent(&direct{ResponseWriter: w}, r, "", modified, content)
}

// direct passes a body to the connection's own writer, which can let the operating system send a
// file; wrappers around it see only the status.
type direct struct{ http.ResponseWriter }

// Unwrap is for [http.ResponseController].
func (d *direct) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// ReadFrom is called after WriteHeader.
func (d *direct) ReadFrom(r io.Reader) (int64, error) {
	w := d.ResponseWriter
	for {
		if to, ok := w.(io.ReaderFrom); ok {
			return to.ReadFrom(r)
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return copyChunks(d.ResponseWriter, r)
		}
		w = inner.Unwrap()
	}
}

func (b *Bucket) servePut(w http.ResponseWriter, r *http.Request, c claims) error {
	switch {
	case r.ContentLength != c.size || len(r.TransferEncoding) > 0:
		return bucket.ErrLength
	case c.purpose == purposePut && r.Header.Get("Content-Type") != c.parameter.Get("type"):
		return bucket.ErrDenied
	}
	if err := b.check(r.Context(), c.key); err != nil {
		return err
	}
	body := whole{http.MaxBytesReader(w, r.Body, c.size)}
	var etag string
	var err error
	if c.purpose == purposePart {
		etag, err = b.putPart(r.Context(), c.key, c.upload, c.number, c.size, body)
	} else {
		etag, err = b.putWhole(r, c, body)
	}
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (b *Bucket) check(ctx context.Context, key string) error {
	if b.serving.Check == nil {
		return nil
	}
	return b.serving.Check(ctx, key)
}

func (b *Bucket) putWhole(r *http.Request, c claims, body io.Reader) (etag string, err error) {
	// Only one upload of a key runs at a time, because its reservation covers its bytes once.
	unlock, err := b.parts.lock(r.Context(), c.key)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := b.Head(r.Context(), c.key); err == nil {
		return "", bucket.ErrExists
	}
	sum := sha256.New()
	_, err = b.write(r.Context(), c.key, func(f *os.File) error {
		n, err := copyChunks(io.MultiWriter(f, sum), body)
		switch {
		case err != nil:
			return err
		case n != c.size:
			return bucket.ErrLength
		case len(c.checksum) > 0 && !bytes.Equal(c.checksum, sum.Sum(nil)):
			return bucket.ErrChecksum
		}
		return b.check(r.Context(), c.key) // an upload that was given up in the meantime is not stored
	})
	return `"` + hex.EncodeToString(sum.Sum(nil)[:16]) + `"`, err
}

// whole is a request body that distinguishes its end from a body that was cut off or came too
// slowly.
type whole struct{ r io.Reader }

func (b whole) Read(buf []byte) (int, error) {
	n, err := b.r.Read(buf)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errStalled
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = bucket.ErrLength
	}
	return n, err
}

// copyChunks is [io.Copy] through a pooled buffer.
func copyChunks(to io.Writer, from io.Reader) (n int64, err error) {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for {
		m, err := io.ReadFull(from, buf[:])
		if m > 0 {
			if _, err := to.Write(buf[:m]); err != nil {
				return n, err
			}
			n += int64(m)
		}
		switch {
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			return n, nil
		case err != nil:
			return n, err
		}
	}
}
