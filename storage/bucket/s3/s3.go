// Package s3 is the bucket on a server with the S3 interface: AWS, R2, MinIO, versitygw and others.
// Clients talk to the server directly, by presigned URLs, so that their bytes do not pass through
// the kit. Pages of another origin need CORS rules on the bucket that allow PUT and GET and expose
// ETag.
package s3

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/kitbackend/kit/storage/bucket"
)

// Config configures a bucket. Empty fields are taken from the credentials that storage reads from
// the secret storage-bucket-credentials.
type Config struct {
	// Endpoint is the URL at which the kit reaches the server, such as
	// "https://s3.eu-central-1.amazonaws.com"; by default that of R2 for the account of the
	// credentials.
	Endpoint string
	// PublicEndpoint is the URL at which clients reach the server, by default Endpoint. The host is
	// part of every signature.
	PublicEndpoint string
	// Region is by default "us-east-1", for R2 "auto".
	Region string
	// Bucket is the name of an existing bucket.
	Bucket string
	// Prefix is the beginning of every key, such as "app/", so that a bucket can be shared.
	Prefix string
	// AccessKeyID and SecretAccessKey are set together, or both are taken from the secret.
	AccessKeyID, SecretAccessKey string
	// SessionToken is the token of temporary credentials.
	SessionToken string
	// PathStyle puts the bucket's name into the path even if the server has a host for each bucket.
	PathStyle bool
	// Transport replaces the HTTP transport.
	Transport http.RoundTripper
}

// Bucket stores objects on an S3 server.
type Bucket struct {
	cfg    Config
	source func(context.Context) (bucket.Credentials, error)

	mu    sync.Mutex
	known *clients
}

var (
	_ bucket.Bucket       = (*Bucket)(nil)
	_ bucket.Credentialed = (*Bucket)(nil)
)

// clients holds the clients of one bucket with one set of credentials.
type clients struct {
	with             bucket.Credentials
	internal, public minio.Core
	bucket           string
}

// New returns the bucket; it does no I/O.
func New(cfg Config) *Bucket { return &Bucket{cfg: cfg} }

// Parse reads a configuration from an address such as
// "https://access:secret@s3.example.com/bucket?region=eu-1&public=https://cdn.example.com".
func Parse(address string) (Config, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Config{}, errors.New("s3: the address does not parse") // err would quote the secret
	}
	name, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if u.Host == "" || name == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Config{}, errors.New("s3: the address has the form https://access:secret@host/bucket")
	}
	if prefix != "" {
		prefix += "/"
	}
	secret, _ := u.User.Password()
	return Config{Endpoint: u.Scheme + "://" + u.Host, PublicEndpoint: u.Query().Get("public"), Region: u.Query().Get("region"),
		Bucket: name, Prefix: prefix, AccessKeyID: u.User.Username(), SecretAccessKey: secret, PathStyle: true}, nil
}

// Name returns "s3".
func (b *Bucket) Name() string { return "s3" }

// CheckCredentials implements [bucket.Credentialed].
func (b *Bucket) CheckCredentials() error {
	if (b.cfg.AccessKeyID == "") != (b.cfg.SecretAccessKey == "") {
		return errors.New("has one half of a key pair")
	}
	return nil
}

// NeedsCredentials implements [bucket.Credentialed].
func (b *Bucket) NeedsCredentials() bool { return b.cfg.AccessKeyID == "" }

// UseCredentials implements [bucket.Credentialed].
func (b *Bucket) UseCredentials(source func(context.Context) (bucket.Credentials, error)) {
	b.source = source
}

// Close does nothing: the transport owns the connections.
func (b *Bucket) Close() error { return nil }

// connect returns the clients for the current credentials.
func (b *Bucket) connect(ctx context.Context) (*clients, error) {
	with := bucket.Credentials{Bucket: b.cfg.Bucket, AccessKeyID: b.cfg.AccessKeyID, SecretAccessKey: b.cfg.SecretAccessKey, ScopedToken: b.cfg.SessionToken}
	if b.source != nil {
		given, err := b.source(ctx)
		if err != nil {
			return nil, err
		}
		with = given
		with.Bucket = cmp.Or(b.cfg.Bucket, given.Bucket)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known != nil && b.known.with == with {
		return b.known, nil
	}
	c := &clients{with: with, bucket: with.Bucket}
	if c.bucket == "" {
		return nil, errors.New("s3: neither the configuration nor the credentials name a bucket")
	}
	region, endpoint := b.cfg.Region, b.cfg.Endpoint
	if endpoint == "" {
		if with.AccountID == "" {
			return nil, errors.New("s3: neither the configuration names an endpoint nor the credentials an account")
		}
		endpoint, region = "https://"+with.AccountID+".r2.cloudflarestorage.com", cmp.Or(region, "auto")
	}
	region = cmp.Or(region, "us-east-1") // set explicitly, or signing would request it from the server
	for at, address := range map[*minio.Core]string{&c.internal: endpoint, &c.public: cmp.Or(b.cfg.PublicEndpoint, endpoint)} {
		client, err := b.client(address, region, with)
		if err != nil {
			return nil, err
		}
		at.Client = client
	}
	b.known = c
	return c, nil
}

func (b *Bucket) client(endpoint, region string, with bucket.Credentials) (*minio.Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("s3: %q is not an address of a server", endpoint)
	}
	lookup := minio.BucketLookupAuto
	if b.cfg.PathStyle {
		lookup = minio.BucketLookupPath
	}
	return minio.New(u.Host, &minio.Options{Creds: credentials.NewStaticV4(with.AccessKeyID, with.SecretAccessKey, with.ScopedToken),
		Secure: u.Scheme == "https", Region: region, BucketLookup: lookup, Transport: b.cfg.Transport, MaxRetries: 3})
}

// at returns the clients and the name of an object. Only valid keys become names.
func (b *Bucket) at(ctx context.Context, key string) (*clients, string, error) {
	if !bucket.ValidKey(key) {
		return nil, "", bucket.ErrNotFound
	}
	c, err := b.connect(ctx)
	return c, b.cfg.Prefix + key, err
}

// known maps the server's error codes to the errors of a bucket.
func known(err error) error {
	if err == nil {
		return nil
	}
	switch minio.ToErrorResponse(err).Code {
	case "NoSuchKey", "NotFound":
		return fmt.Errorf("%w: %w", bucket.ErrNotFound, err)
	case "NoSuchUpload":
		return fmt.Errorf("%w: %w", bucket.ErrNoUpload, err)
	case "InvalidPart", "InvalidPartOrder", "EntityTooSmall":
		return fmt.Errorf("%w: %w", bucket.ErrParts, err)
	case "PreconditionFailed":
		return fmt.Errorf("%w: %w", bucket.ErrExists, err)
	}
	return err
}

// SignPut implements [bucket.Bucket]. The signature covers length, type and checksum, and the
// condition that no object exists.
func (b *Bucket) SignPut(ctx context.Context, key string, put bucket.Put, ttl time.Duration) (bucket.Signed, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return bucket.Signed{}, err
	}
	headers := map[string]string{"Content-Type": put.ContentType, "If-None-Match": "*"}
	if len(put.SHA256) > 0 {
		headers["X-Amz-Checksum-Sha256"] = base64.StdEncoding.EncodeToString(put.SHA256)
	}
	signed := http.Header{"Content-Length": {strconv.FormatInt(put.Size, 10)}}
	for header, value := range headers {
		signed.Set(header, value)
	}
	return sign(ctx, c, http.MethodPut, name, ttl, nil, signed, headers)
}

// SignPart implements [bucket.Bucket].
func (b *Bucket) SignPart(ctx context.Context, key, upload string, number int, size int64, ttl time.Duration) (bucket.Signed, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return bucket.Signed{}, err
	}
	query := url.Values{"uploadId": {upload}, "partNumber": {strconv.Itoa(number)}}
	return sign(ctx, c, http.MethodPut, name, ttl, query, http.Header{"Content-Length": {strconv.FormatInt(size, 10)}}, nil)
}

// SignGet implements [bucket.Bucket].
func (b *Bucket) SignGet(ctx context.Context, key string, get bucket.Get, ttl time.Duration) (bucket.Signed, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return bucket.Signed{}, err
	}
	query := url.Values{"response-content-type": {get.ContentType}, "response-content-disposition": {get.Disposition},
		"response-cache-control": {"private, no-store"}}
	return sign(ctx, c, http.MethodGet, name, ttl, query, nil, nil)
}

func sign(ctx context.Context, c *clients, method, name string, ttl time.Duration, query url.Values, signed http.Header, headers map[string]string) (bucket.Signed, error) {
	ttl = max(ttl.Truncate(time.Second), time.Second) // the server counts seconds
	u, err := c.public.PresignHeader(ctx, method, c.bucket, name, ttl, query, signed)
	if err != nil {
		return bucket.Signed{}, err
	}
	return bucket.Signed{Method: method, URL: u.String(), Header: headers}, nil
}

// unknownPart is the part size for an object whose size is not known.
const unknownPart = 16 << 20

// Put implements [bucket.Bucket].
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, size int64, contentType string) (bucket.Info, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return bucket.Info{}, err
	}
	opts := minio.PutObjectOptions{ContentType: contentType}
	switch {
	case size < 0:
		opts.PartSize = unknownPart
	case size <= bucket.MinPartSize:
		opts.SetMatchETagExcept("*")
	}
	counted := &counter{r: r}
	info, err := c.internal.Client.PutObject(ctx, c.bucket, name, counted, size, opts)
	switch {
	case counted.err != nil:
		return bucket.Info{}, counted.err
	case err != nil:
		return bucket.Info{}, known(err)
	case size >= 0 && counted.n != size:
		return bucket.Info{}, bucket.ErrLength
	}
	return bucket.Info{Size: counted.n, ModifiedAt: info.LastModified}, nil
}

// counter counts the bytes that are read and keeps the error that ended reading.
type counter struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// Head implements [bucket.Bucket].
func (b *Bucket) Head(ctx context.Context, key string) (bucket.Info, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return bucket.Info{}, err
	}
	stat, err := c.internal.StatObject(ctx, c.bucket, name, minio.StatObjectOptions{})
	return bucket.Info{Size: stat.Size, ModifiedAt: stat.LastModified}, known(err)
}

// Open implements [bucket.Bucket].
func (b *Bucket) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return nil, err
	}
	var opts minio.GetObjectOptions
	switch {
	case length == 0:
		return io.NopCloser(strings.NewReader("")), nil
	case length > 0:
		err = opts.SetRange(offset, offset+length-1)
	case offset > 0:
		err = opts.SetRange(offset, 0)
	}
	if err != nil {
		return nil, err
	}
	body, _, _, err := c.internal.GetObject(ctx, c.bucket, name, opts)
	if minio.ToErrorResponse(err).Code == "InvalidRange" { // beyond the end
		return io.NopCloser(strings.NewReader("")), nil
	}
	if err != nil {
		return nil, known(err)
	}
	return body, nil
}

// maxCopy is the largest object the server copies in one request.
const maxCopy = 5 << 30

// Copy implements [bucket.Bucket].
func (b *Bucket) Copy(ctx context.Context, from, to, _ string) (bucket.Info, error) {
	info, err := b.Head(ctx, from)
	if err != nil {
		return info, err
	}
	c, source, err := b.at(ctx, from)
	if err != nil {
		return info, err
	}
	_, target, err := b.at(ctx, to)
	if err != nil {
		return info, err
	}
	dst, src := minio.CopyDestOptions{Bucket: c.bucket, Object: target}, minio.CopySrcOptions{Bucket: c.bucket, Object: source}
	if info.Size > maxCopy {
		_, err = c.internal.ComposeObject(ctx, dst, src)
	} else {
		_, err = c.internal.Client.CopyObject(ctx, dst, src)
	}
	if err != nil {
		return info, known(err)
	}
	return b.Head(ctx, to)
}

// Delete implements [bucket.Bucket].
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 1 {
		c, name, err := b.at(ctx, keys[0])
		if err == nil {
			err = known(c.internal.RemoveObject(ctx, c.bucket, name, minio.RemoveObjectOptions{}))
		}
		if errors.Is(err, bucket.ErrNotFound) {
			return nil
		}
		return err
	}
	c, err := b.connect(ctx)
	if err != nil {
		return err
	}
	objects := make(chan minio.ObjectInfo)
	go func() {
		defer close(objects)
		for _, key := range keys {
			if !bucket.ValidKey(key) {
				continue
			}
			select {
			case objects <- minio.ObjectInfo{Key: b.cfg.Prefix + key}:
			case <-ctx.Done():
				return
			}
		}
	}()
	var failed []error
	for e := range c.internal.RemoveObjects(ctx, c.bucket, objects, minio.RemoveObjectsOptions{}) {
		failed = append(failed, e.Err)
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// pageSize is the most entries a server returns per request.
const pageSize = 1000

// List implements [bucket.Bucket].
func (b *Bucket) List(ctx context.Context, after string, limit int) ([]bucket.Object, error) {
	c, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	var list []bucket.Object
	start, token := "", ""
	if after != "" {
		start = b.cfg.Prefix + after
	}
	for ctx.Err() == nil {
		page, err := c.internal.ListObjectsV2(c.bucket, b.cfg.Prefix, start, token, "", min(limit-len(list), pageSize))
		if err != nil {
			return nil, known(err)
		}
		for _, o := range page.Contents {
			key := strings.TrimPrefix(o.Key, b.cfg.Prefix)
			if bucket.ValidKey(key) && key > after {
				list = append(list, bucket.Object{Key: key, Info: bucket.Info{Size: o.Size, ModifiedAt: o.LastModified}})
			}
		}
		if !page.IsTruncated || len(list) >= limit {
			return list, nil
		}
		start, token = "", page.NextContinuationToken
	}
	return nil, ctx.Err()
}

// Start implements [bucket.Bucket].
func (b *Bucket) Start(ctx context.Context, key string, plan bucket.Plan) (string, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return "", err
	}
	upload, err := c.internal.NewMultipartUpload(ctx, c.bucket, name, minio.PutObjectOptions{ContentType: plan.ContentType})
	return upload, known(err)
}

// Parts implements [bucket.Bucket].
func (b *Bucket) Parts(ctx context.Context, key, upload string, after, limit int) ([]bucket.Part, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return nil, err
	}
	parts := []bucket.Part{}
	for {
		page, err := c.internal.ListObjectParts(ctx, c.bucket, name, upload, after, min(limit-len(parts), pageSize))
		if err != nil {
			return nil, known(err)
		}
		for _, p := range page.ObjectParts {
			parts = append(parts, bucket.Part{Number: p.PartNumber, Size: p.Size, ETag: `"` + strings.Trim(p.ETag, `"`) + `"`})
		}
		if !page.IsTruncated || len(parts) >= limit || len(page.ObjectParts) == 0 {
			return parts, nil
		}
		after = page.NextPartNumberMarker
	}
}

// Complete implements [bucket.Bucket].
func (b *Bucket) Complete(ctx context.Context, key, upload string, parts []bucket.Part) (bucket.Info, error) {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return bucket.Info{}, err
	}
	list := make([]minio.CompletePart, len(parts))
	for i, p := range parts {
		list[i] = minio.CompletePart{PartNumber: p.Number, ETag: strings.Trim(p.ETag, `"`)}
	}
	if _, err := c.internal.CompleteMultipartUpload(ctx, c.bucket, name, upload, list, minio.PutObjectOptions{}); err != nil {
		return bucket.Info{}, known(err)
	}
	return b.Head(ctx, key) // the response does not have the size
}

// Abort implements [bucket.Bucket].
func (b *Bucket) Abort(ctx context.Context, key, upload string) error {
	c, name, err := b.at(ctx, key)
	if err != nil {
		return err
	}
	err = known(c.internal.AbortMultipartUpload(ctx, c.bucket, name, upload))
	if errors.Is(err, bucket.ErrNoUpload) || errors.Is(err, bucket.ErrNotFound) {
		return nil
	}
	return err
}

// Uploads implements [bucket.Bucket].
func (b *Bucket) Uploads(ctx context.Context, cursor string, limit int) (uploads []bucket.Upload, next string, err error) {
	c, err := b.connect(ctx)
	if err != nil {
		return nil, "", err
	}
	key, upload, _ := strings.Cut(cursor, "\n")
	page, err := c.internal.ListMultipartUploads(ctx, c.bucket, b.cfg.Prefix, key, upload, "", min(limit, pageSize))
	if err != nil {
		return nil, "", known(err)
	}
	for _, u := range page.Uploads {
		if key := strings.TrimPrefix(u.Key, b.cfg.Prefix); bucket.ValidKey(key) {
			uploads = append(uploads, bucket.Upload{Key: key, ID: u.UploadID, StartedAt: u.Initiated})
		}
	}
	if page.IsTruncated {
		next = page.NextKeyMarker + "\n" + page.NextUploadIDMarker
	}
	return uploads, next, nil
}

// Tidy does nothing: the server has no interrupted writes.
func (b *Bucket) Tidy(context.Context, time.Time) error { return nil }

// Make creates the bucket if it does not exist, for tests and first runs.
func (b *Bucket) Make(ctx context.Context) error {
	c, err := b.connect(ctx)
	if err != nil {
		return err
	}
	if found, err := c.internal.BucketExists(ctx, c.bucket); err != nil || found {
		return err
	}
	return c.internal.MakeBucket(ctx, c.bucket, minio.MakeBucketOptions{})
}
