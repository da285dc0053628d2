// Package storage keeps files of users: their bytes in a bucket, everything else in rows.
//
// # Guarantees
//
//   - A client sends and fetches bytes by signed URLs, or fetches them through the kit. The key
//     under which they are stored is generated and opaque; the path is data of the row, so that
//     renaming moves no bytes.
//   - Space is reserved under the owner's lock before a byte is stored, and a URL accepts exactly
//     the bytes it was signed for. Used and reserved space never exceed the quota, under any
//     concurrency; a reservation ends with complete, abort or its expiry.
//   - An object cannot be read before it is complete. Its bytes never change: another upload to its
//     path is another object, which replaces it in the transaction that completes the upload. There
//     are no versions.
//   - The process may be killed at any point. Acknowledged writes stay; bytes without a row and
//     rows without bytes are removed by the next sweep.
//   - A private object of another user cannot be distinguished from a missing one.
//   - Content that a browser could run is served as an attachment, whatever its name and declared
//     type; the inline types are a list.
//
// # Namespaces
//
// Other capabilities keep objects through [Storage.Namespace]. These count toward their owner's
// quota, and no route of storage shows them.
//
// # Who may call
//
// In process, any holder of the *Storage: an operation on [ByID] acts for the application, one on
// Ref.As acts for a user. Over HTTP users use their own objects; everybody reads public ones; the
// token of a share and the signature of a URL are credentials by themselves.
package storage

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// Name is the capability's name.
const Name = "storage"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities storage uses.
type Peers struct {
	// Audit records deletions, shares and changes of visibility; nil records nothing.
	Audit *audit.Audit
	// Secrets keeps the credentials of a bucket that has none configured; such a bucket requires
	// it.
	Secrets *secrets.Secrets
}

// Storage stores objects. It is safe for concurrent use, from several processes that share
// PostgreSQL and one bucket.
type Storage struct {
	Space
	cfg    Config
	host   capability.Host
	db     *database.DB
	store  store
	bucket bucket.Bucket
	served bucket.Served // the bucket, if the kit serves its signed URLs
	keys   *signingKeys
	audit  *audit.Audit
	base   string // the URL at which clients reach the kit
	// failing is until when the bucket is not called after commits, in milliseconds.
	failing atomic.Int64
}

// Space is the objects of one namespace. The Space of [Storage] itself has the objects of users.
type Space struct {
	s         *Storage
	namespace string
}

// Namespace returns the objects of another capability, by its name. No route of storage reads or
// changes them.
func (s *Storage) Namespace(name string) Space { return Space{s, name} }

// New returns a Storage. It reports all faults of the configuration at once; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Storage, error) {
	cfg = cfg.withDefaults()
	faults := capability.Faults{Capability: Name}
	cfg.validate(&faults, host)
	sealer, err := host.Sealing()
	faults.Join(err)
	s := &Storage{cfg: cfg, host: host, db: host.DB, store: store{host.DB}, bucket: cfg.Bucket, audit: peers.Audit}
	s.Space = Space{s: s}
	if s.bucket == nil {
		s.bucket = file.New("")
	}
	s.base = strings.TrimSuffix(host.BaseURL.String(), "/")
	s.keys = newSigningKeys(host, s.store, sealer)
	if served, ok := s.bucket.(bucket.Served); ok {
		s.served = served
		served.Attach(bucket.Serving{Prefix: s.base + cfg.SignedPath + "/", Now: host.Now,
			Current: s.keys.current, Find: s.keys.find, Check: s.checkWrite})
	}
	if b, ok := s.bucket.(bucket.Credentialed); ok && b.NeedsCredentials() {
		faults.Join(declareCredentials(b, peers.Secrets))
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// CredentialsSecret is the name of the secret of a bucket that needs credentials.
const CredentialsSecret = "storage-bucket-credentials"

// declareCredentials makes the bucket read its credentials from secrets.
func declareCredentials(b bucket.Credentialed, kept *secrets.Secrets) error {
	if kept == nil {
		return capability.MissingPeer(Name, secrets.Name)
	}
	const block = "bucket"
	handle, err := kept.Declare(secrets.Secret{Name: CredentialsSecret, Blocks: []secrets.Block{{
		Name:     block,
		Optional: []string{"accountId", "bucket", "accessKeyId", "secretAccessKey", "scopedToken"},
		Together: [][]string{{"accessKeyId", "secretAccessKey"}},
	}}})
	if err != nil {
		return err
	}
	b.UseCredentials(func(ctx context.Context) (bucket.Credentials, error) {
		data, err := handle.Get(ctx)
		if err != nil {
			return bucket.Credentials{}, err
		}
		fields, ok := data.Block(block)
		if !ok {
			return bucket.Credentials{}, fmt.Errorf("storage: the secret %s has no block %s", CredentialsSecret, block)
		}
		return bucket.Credentials{
			AccountID: fields["accountId"].Reveal(), Bucket: fields["bucket"].Reveal(),
			AccessKeyID: fields["accessKeyId"].Reveal(), SecretAccessKey: fields["secretAccessKey"].Reveal(),
			ScopedToken: fields["scopedToken"].Reveal(),
		}, nil
	})
	return nil
}

// Capability describes storage to the kit.
func (s *Storage) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   s.db,
		Prefix:     s.cfg.BasePath,
		Claims:     s.claims(),
		Routes:     s.routes(),
		Config:     s.cfg.keys(s.bucket.Name()),
		Health:     s.health(),
		Migrations: migrations,
		Jobs:       s.jobs(),
		Refusals:   refusals(),
		Rewrap:     s.keys.rewrap,
		Export:     s.export,
		Erase:      s.erase,
		Close:      func(context.Context) error { return s.bucket.Close() },
	}
}

// claims returns the prefixes that are not under the base path.
func (s *Storage) claims() []string {
	prefixes := []string{s.cfg.SharePath}
	if s.served != nil {
		prefixes = append(prefixes, s.cfg.SignedPath)
	}
	return prefixes
}

func (s *Storage) jobs() []jobs.Binding {
	list := []jobs.Binding{{Name: "STORAGE_TIDY", Schedule: "*/10 * * * *",
		Run: func(ctx context.Context, _ jobs.Job) error { return s.tidy(ctx) }}}
	if s.cfg.NoSweep {
		return list
	}
	return append(list, jobs.Binding{Name: "STORAGE_SWEEP", Schedule: "41 3 * * *", Timeout: sweepTimeout,
		Run:      func(ctx context.Context, _ jobs.Job) error { _, err := s.Sweep(ctx); return err },
		Dispatch: jobs.Dispatchable[struct{}]()})
}

func (s *Storage) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "bytes", Read: func(ctx context.Context) (any, error) {
			used, reserved, err := s.store.totals(ctx)
			return map[string]float64{"used": used, "reserved": reserved}, err
		}},
		{Key: "garbage", Read: func(ctx context.Context) (any, error) { return s.store.countGarbage(ctx) }},
	}
}

// checkWrite refuses a write by a signed URL unless the upload is pending.
func (s *Storage) checkWrite(ctx context.Context, key string) error {
	o, ok, err := s.store.byKey(ctx, key)
	if err == nil && (!ok || !s.live(o) || o.State != StatePending) {
		err = bucket.ErrNoUpload
	}
	return err
}

// live reports whether an object exists: its upload was neither aborted nor has it expired.
func (s *Storage) live(o Object) bool {
	return o.State == StateReady || o.State == StatePending && o.expires > s.host.Now().UnixMilli()
}

// owned returns an object that the caller of the reference may change.
func (p Space) owned(ctx context.Context, ref Ref) (Object, error) {
	o, ok, err := p.s.store.object(ctx, p.namespace, ref.id)
	if err != nil {
		return o, err
	}
	return o, p.s.mayChange(o, ok, ref)
}

// lockOwned is owned for a change, in a transaction. The owner's lock is taken first, as
// everywhere.
func (p Space) lockOwned(ctx context.Context, ref Ref) (Object, error) {
	o, err := p.owned(ctx, ref)
	if err != nil {
		return o, err
	}
	if err := p.s.store.lockUsage(ctx, o.OwnerID); err != nil {
		return o, err
	}
	owner := o.OwnerID
	o, ok, err := p.s.store.lockObject(ctx, p.namespace, ref.id)
	if err == nil && !ok {
		err = p.s.store.removeUsage(ctx, owner) // the object may have been removed with its owner
	}
	if err != nil {
		return o, err
	}
	return o, p.s.mayChange(o, ok, ref)
}

// mayChange returns [ErrForbidden] for a public object of another user, and [ErrNotFound] for any
// other object that the caller may not change.
func (s *Storage) mayChange(o Object, found bool, ref Ref) error {
	switch {
	case !found || !s.live(o):
		return ErrNotFound
	case !ref.restricted || ref.user != "" && ref.user == o.OwnerID:
		return nil
	case o.State == StateReady && o.Visibility == VisibilityPublic:
		return ErrForbidden
	default:
		return ErrNotFound
	}
}

// readable returns a complete object that the caller of the reference may read.
func (p Space) readable(ctx context.Context, ref Ref) (Object, error) {
	o, err := p.owned(ctx, ref)
	switch {
	case errors.Is(err, ErrForbidden):
		return o, nil // public
	case err != nil:
		return o, err
	case o.State != StateReady:
		return o, ErrUploadIncomplete
	}
	return o, nil
}

// ready is owned for operations on complete objects.
func (p Space) ready(ctx context.Context, ref Ref) (Object, error) {
	o, err := p.owned(ctx, ref)
	if err == nil && o.State != StateReady {
		err = ErrUploadIncomplete
	}
	return o, err
}

// quota returns the quota of an owner, 0 without a limit.
func (s *Storage) quota(ctx context.Context, owner string) (int64, error) {
	switch {
	case owner == "":
		return 0, nil
	case s.cfg.QuotaOf != nil:
		return s.cfg.QuotaOf(ctx, owner)
	default:
		return s.cfg.Quota, nil
	}
}

// Usage returns the space that an owner's objects of all namespaces take.
func (s *Storage) Usage(ctx context.Context, ownerID string) (Usage, error) {
	u, err := s.store.usage(ctx, ownerID)
	if err != nil {
		return u, err
	}
	u.Quota, err = s.quota(ctx, ownerID)
	return u, err
}

// absent reports whether the bucket returned that an object or upload does not exist.
func absent(err error) bool {
	return errors.Is(err, bucket.ErrNotFound) || errors.Is(err, bucket.ErrNoUpload)
}
