package storage

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage/bucket"
)

// Config configures storage. The zero value keeps objects in a temporary directory, which
// production refuses.
type Config struct {
	// BasePath is the mount prefix, by default "/storage".
	BasePath string
	// SharePath is the mount prefix of share links, by default "/s".
	SharePath string
	// SignedPath is the prefix of the signed URLs that the kit serves, for a bucket without a
	// server of its own; by default "/_kit/storage".
	SignedPath string
	// Database is the name of the binding of the rows, by default "DB".
	Database string
	// Bucket stores the bytes: file.New(dir) or s3.New(config). nil is a temporary directory. The
	// capability closes it.
	Bucket bucket.Bucket
	// MultipartThresholdBytes is the size above which an upload is sent in parts, by default 100
	// MiB, at most 5 GiB.
	MultipartThresholdBytes int64
	// PartSizeBytes is the size of a part, by default 64 MiB, 5 MiB to 5 GiB. An
	// object has at most 10,000 parts.
	PartSizeBytes int64
	// DefaultVisibility is the visibility of uploads that set none, by default private.
	DefaultVisibility Visibility
	// PendingTTL is how long an unfinished upload keeps its reservation, by default 24 hours, one
	// minute to seven days.
	PendingTTL time.Duration
	// Quota is how many bytes an owner may have, including uploads in progress; 0 means no limit.
	Quota int64
	// QuotaOf returns the quota of an owner, instead of Quota; 0 means no limit. It is called
	// outside of transactions.
	QuotaOf func(ctx context.Context, ownerID string) (int64, error)
	// MaxObjectBytes is the largest size of an object; 0 means the largest that the parts allow.
	MaxObjectBytes int64
	// AllowedTypes lists the types that users may upload, such as "image/png" or
	// "image/*"; empty means all.
	AllowedTypes []string
	// Authorize refuses uploads and copies of users by rules of the application.
	// It is called before anything is reserved, outside of transactions.
	Authorize func(ctx context.Context, upload Upload) error
	// NoSweep disables the daily job STORAGE_SWEEP.
	NoSweep bool
}

// The bounds of the configuration.
const (
	defaultThreshold = 100 << 20
	defaultPartSize  = 64 << 20
	defaultPending   = 24 * time.Hour
	minPending       = time.Minute
	maxPending       = 7 * 24 * time.Hour
)

func (c Config) withDefaults() Config {
	c.BasePath = cmp.Or(c.BasePath, "/storage")
	c.SharePath = cmp.Or(c.SharePath, "/s")
	c.SignedPath = cmp.Or(c.SignedPath, "/_kit/storage")
	c.Database = cmp.Or(c.Database, "DB")
	c.MultipartThresholdBytes = cmp.Or(c.MultipartThresholdBytes, defaultThreshold)
	c.PartSizeBytes = cmp.Or(c.PartSizeBytes, defaultPartSize)
	c.DefaultVisibility = cmp.Or(c.DefaultVisibility, VisibilityPrivate)
	c.PendingTTL = cmp.Or(c.PendingTTL, defaultPending)
	return c
}

func (c Config) validate(faults *capability.Faults, host capability.Host) {
	outside := func(key string, value, least, most int64) {
		if value < least || value > most {
			faults.Add(key, value, "is out of range", fmt.Sprintf("use %d to %d", least, most))
		}
	}
	outside("multipartThresholdBytes", c.MultipartThresholdBytes, 1, bucket.MaxPut)
	outside("partSizeBytes", c.PartSizeBytes, bucket.MinPartSize, bucket.MaxPartSize)
	outside("pendingTtlSeconds", int64(c.PendingTTL/time.Second), int64(minPending/time.Second), int64(maxPending/time.Second))
	outside("quota", c.Quota, 0, maxSize)
	outside("maxObjectBytes", c.MaxObjectBytes, 0, maxSize)
	if !c.DefaultVisibility.known() {
		faults.Add("defaultVisibility", c.DefaultVisibility, "is not a visibility", "use private or public")
	}
	for i, pattern := range c.AllowedTypes {
		kind, _, err := mime.ParseMediaType(strings.Replace(pattern, "/*", "/x", 1))
		if err != nil || !strings.Contains(kind, "/") || pattern != strings.ToLower(pattern) {
			faults.Add(fmt.Sprintf("allowedTypes[%d]", i), pattern, "is not a media type", "write it like image/png or image/*")
		}
	}
	temporary, ok := c.Bucket.(interface{ Temporary() bool })
	if host.Production() && (c.Bucket == nil || ok && temporary.Temporary()) {
		faults.Add("bucket", nil, "is missing or temporary in production: objects would be gone with the process", "give file.New(dir) or s3.New(config)")
	}
	if credentialed, ok := c.Bucket.(bucket.Credentialed); ok {
		if err := credentialed.CheckCredentials(); err != nil {
			faults.Add("bucket", c.Bucket.Name(), err.Error(), "give both halves of the key pair, or neither and the secret "+CredentialsSecret)
		}
	}
}

func (c Config) keys(driver string) []capability.ConfigKey {
	return []capability.ConfigKey{
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
		{Key: "sharePath", Value: c.SharePath, Summary: "Where share links are mounted."},
		{Key: "signedPath", Value: c.SignedPath, Summary: "Where the kit serves signed addresses itself."},
		{Key: "database", Value: c.Database, Summary: "The database binding of the rows."},
		{Key: "bucket", Value: driver, Summary: "What keeps the bytes."},
		{Key: "multipartThresholdBytes", Value: c.MultipartThresholdBytes, Summary: "Above this size an upload comes in parts."},
		{Key: "partSizeBytes", Value: c.PartSizeBytes, Summary: "Bytes of a part."},
		{Key: "defaultVisibility", Value: c.DefaultVisibility, Choices: []string{string(VisibilityPrivate), string(VisibilityPublic)},
			Summary: "The visibility of uploads that name none."},
		{Key: "pendingTtlSeconds", Value: int64(c.PendingTTL / time.Second), Summary: "How long an unfinished upload holds its reservation."},
		{Key: "quota", Value: c.Quota, Summary: "Bytes an owner may have; 0 means no limit."},
		{Key: "quotaOf", Value: c.QuotaOf != nil, Summary: "Whether the application decides the quota of each owner."},
		{Key: "maxObjectBytes", Value: c.MaxObjectBytes, Summary: "Bytes an object may have; 0 means what parts can make."},
		{Key: "allowedTypes", Value: c.AllowedTypes, Summary: "The types users may upload; empty means all."},
		{Key: "authorize", Value: c.Authorize != nil, Summary: "Whether the application authorizes uploads."},
		{Key: "noSweep", Value: c.NoSweep, Summary: "Whether the daily sweep is left out."},
	}
}
