package kit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/mail"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/rating"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
	"github.com/kitbackend/kit/vector"
)

// part is a composed capability before it is built.
type part struct {
	database string // the binding it wants
	build    func(*assembly, capability.Host) (capability.Capability, error)
}

// described is the Capability method of a built capability. It is a function and not an interface,
// because for an interface the linker keeps that method of every type which the capability refers
// to.
type described func() capability.Capability

// compose makes the option of one capability; build stores the capability in the kit. Only the
// option names the constructor, so that a capability that is not composed is not linked. compose is
// not generic over types that refer to [Kit], because the linker keeps every method of such a type.
func compose(name, database string, build func(*assembly, capability.Host) (any, described, error)) Option {
	return func(o *options) {
		if _, ok := o.parts[name]; ok {
			o.twice = append(o.twice, name)
		}
		o.parts[name] = part{cmp.Or(database, DefaultDatabase), func(a *assembly, host capability.Host) (capability.Capability, error) {
			built, describe, err := build(a, host)
			if err != nil {
				return capability.Capability{}, err
			}
			a.kit.built[name] = built
			return describe(), nil
		}}
	}
}

// WithAudit composes the append-only trail of who did what.
func WithAudit(cfg audit.Config) Option {
	return compose(audit.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := audit.New(host, cfg, audit.Peers{})
		if err == nil {
			a.kit.record = recorder(built)
		}
		return built, built.Capability, err
	})
}

// recorder records the decisions of control-plane guards in the audit trail.
func recorder(trail *audit.Audit) mount.Recorder {
	return func(r *http.Request, d mount.Decision) error {
		e := audit.Event{Action: d.Action}
		if d.Params != nil {
			e.Detail = map[string]any{"params": d.Params}
		}
		if d.Refusal != nil {
			e.Outcome, e.Code = audit.OutcomeOf(d.Refusal), d.Refusal.Code
		}
		return trail.Record(r.Context(), e)
	}
}

// WithSecrets composes named, versioned, encrypted credentials and their
// rotation.
func WithSecrets(cfg secrets.Config) Option {
	return compose(secrets.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := secrets.New(host, cfg, secrets.Peers{Audit: a.kit.Audit()})
		return built, built.Capability, err
	})
}

// WithControlPlane composes the management surface: machine credentials, their
// keys, and the manifest. Without it every control-plane route refuses with
// controlplane/not_connected.
func WithControlPlane(cfg controlplane.Config) Option {
	return compose(controlplane.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		cfg.Bootstrap = cmp.Or(cfg.Bootstrap, os.Getenv("KIT_CONTROL_PLANE_CONNECTION"))
		built, err := controlplane.New(host, cfg,
			controlplane.Peers{Audit: a.kit.Audit(), Composed: a.kit.Capabilities, Version: a.kit.version})
		if err == nil {
			machines := built.Machines()
			a.kit.machines = &machines
		}
		return built, built.Capability, err
	})
}

// WithEmail composes outbound mail: durable jobs, suppressions, tracking, and
// in development a mailbox.
func WithEmail(cfg email.Config) Option {
	return compose(email.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := email.New(host, cfg, email.Peers{Audit: a.kit.Audit()})
		a.kit.mailer = mail.New(built)
		return built, built.Capability, err
	})
}

// WithAuth composes users, sessions, devices and access tokens, and how users
// sign in: package auth/signin, unless Config.Library names another. Without it
// every user route refuses with auth/unauthenticated.
func WithAuth(cfg auth.Config) Option {
	return compose(auth.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		if cfg.Library == nil {
			cfg.Library = signin.New(signin.Config{})
		}
		built, err := auth.New(host, cfg, auth.Peers{Audit: a.kit.Audit(), Mailer: a.kit.mailer, Erase: a.kit.leaving(host)})
		if err == nil {
			users := built.Users()
			a.kit.users = &users
		}
		return built, built.Capability, err
	})
}

// WithLedger composes integer balances per user and currency.
func WithLedger(cfg ledger.Config) Option {
	return compose(ledger.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := ledger.New(host, cfg, ledger.Peers{Audit: a.kit.Audit()})
		return built, built.Capability, err
	})
}

// WithPayments composes purchases and subscriptions from the rails it names,
// resolved into entitlements. It needs secrets composed.
func WithPayments(cfg payments.Config) Option {
	return compose(payments.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := payments.New(host, cfg, payments.Peers{
			Secrets: a.kit.Secrets(), Ledger: a.kit.Ledger(), Audit: a.kit.Audit(), Users: a.kit.users})
		return built, built.Capability, err
	})
}

// WithStorage composes files of users: uploads by signed addresses, shares,
// quotas, in a directory or on an S3 server.
func WithStorage(cfg storage.Config) Option {
	return compose(storage.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := storage.New(host, cfg, storage.Peers{Audit: a.kit.Audit(), Secrets: a.kit.Secrets()})
		if err == nil {
			a.kit.attachments = attachments(built)
		}
		return built, built.Capability, err
	})
}

// WithMedia composes pictures, films and sounds of users: smaller pictures,
// placeholders, and what looks alike. It needs storage composed.
func WithMedia(cfg media.Config) Option {
	return compose(media.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := media.New(host, cfg, media.Peers{Storage: a.kit.Storage(), Audit: a.kit.Audit()})
		return built, built.Capability, err
	})
}

// WithVector composes documents in named indexes, found by meaning and by word.
func WithVector(cfg vector.Config) Option {
	return compose(vector.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := vector.New(host, cfg, vector.Peers{Audit: a.kit.Audit(), Secrets: a.kit.Secrets()})
		return built, built.Capability, err
	})
}

// attachments stores the files of mails in a namespace of support, apart from the files that users
// uploaded. The ids of the former have a prefix that distinguishes them.
func attachments(s *storage.Storage) support.Files {
	const ofMail = support.Name + "/"
	mails := s.Namespace(support.Name)
	return support.Files{
		Keep: func(ctx context.Context, name, contentType string, content []byte) (string, error) {
			o, err := mails.Stage(ctx, storage.Upload{
				Path: rand.Text() + "/" + name, Size: int64(len(content)), ContentType: contentType, Visibility: storage.VisibilityPrivate,
			}, bytes.NewReader(content))
			return ofMail + o.ID, err
		},
		Commit: func(ctx context.Context, objectID string) error {
			_, err := mails.Commit(ctx, storage.ByID(strings.TrimPrefix(objectID, ofMail)))
			return err
		},
		Owned: func(ctx context.Context, userID, objectID string) (support.File, bool, error) {
			o, err := s.Get(ctx, storage.ByID(objectID).As(userID))
			if refusal := new(capability.Error); errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError {
				return support.File{}, false, nil
			}
			return support.File{Name: path.Base(o.Path), Type: o.ContentType, Size: o.Size},
				err == nil && o.OwnerID == userID && o.State == storage.StateReady, err
		},
		Links: func(ctx context.Context, objectIDs []string, lifetime time.Duration) (map[string]string, error) {
			urls := make(map[string]string)
			for some := range slices.Chunk(objectIDs, storage.MaxBatch) {
				of := map[string][]string{}
				for _, id := range some {
					prefix := ""
					if strings.HasPrefix(id, ofMail) {
						prefix = ofMail
					}
					of[prefix] = append(of[prefix], strings.TrimPrefix(id, prefix))
				}
				for prefix, space := range map[string]storage.Space{ofMail: mails, "": s.Space} {
					links, err := space.SignAll(ctx, of[prefix], storage.SignOptions{TTL: lifetime, Download: prefix == ofMail})
					if err != nil {
						return urls, err
					}
					for id, link := range links {
						urls[prefix+id] = link.URL
					}
				}
			}
			return urls, nil
		},
		Remove: func(ctx context.Context, objectID string) error {
			id, found := strings.CutPrefix(objectID, ofMail)
			if !found {
				return nil
			}
			_, err := mails.DeleteAll(ctx, []string{id})
			return err
		},
	}
}

// WithSupport composes feedback threads from the app and from mail. The mail listener of
// Config.Listen serves while [Kit.Run] runs.
func WithSupport(cfg support.Config) Option {
	return compose(support.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := support.New(host, cfg, support.Peers{
			Audit: a.kit.Audit(), Secrets: a.kit.Secrets(), Email: a.kit.Email(), Auth: a.kit.Auth(), Files: a.kit.attachments})
		if err == nil {
			a.kit.listeners = append(a.kit.listeners, built.Run)
		}
		return built, built.Capability, err
	})
}

// WithTesters composes a closed test: the roster, invitations, reminders and a forecast. It needs
// email. New fails when the constants of the forecast changed and its version did not.
func WithTesters(cfg testers.Config) Option {
	return compose(testers.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := testers.New(host, cfg, testers.Peers{Audit: a.kit.Audit(), Email: a.kit.Email(), Auth: a.kit.Auth()})
		if err == nil {
			a.kit.prepare = append(a.kit.prepare, built.Prepare)
		}
		return built, built.Capability, err
	})
}

// WithLeaderboard composes ranked boards.
func WithLeaderboard(cfg leaderboard.Config) Option {
	return compose(leaderboard.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := leaderboard.New(host, cfg, leaderboard.Peers{Audit: a.kit.Audit()})
		return built, built.Capability, err
	})
}

// WithRating composes skill ratings and experience points.
func WithRating(cfg rating.Config) Option {
	return compose(rating.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := rating.New(host, cfg, rating.Peers{Audit: a.kit.Audit(), Friends: a.lateFriends()})
		return built, built.Capability, err
	})
}

// lateFriends asks matchmaking, which is composed after rating, when it is called.
func (a *assembly) lateFriends() func(context.Context, []string) ([]string, error) {
	if !a.o.friends {
		return nil
	}
	return func(ctx context.Context, users []string) ([]string, error) { return a.kit.friends(ctx, users) }
}

// WithMultiplayer composes game sessions that the server decides: models in Go,
// stakes through the ledger, and randomness that players can check.
func WithMultiplayer(cfg multiplayer.Config) Option {
	return compose(multiplayer.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := multiplayer.New(host, cfg,
			multiplayer.Peers{Ledger: a.kit.Ledger(), Leaderboard: a.kit.Leaderboard(), Rating: a.kit.Rating()})
		return built, built.Capability, err
	})
}

// WithMatchmaking composes rooms with codes, invites, friends, a queue by skill, and presence.
func WithMatchmaking(cfg matchmaking.Config) Option {
	option := compose(matchmaking.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := matchmaking.New(host, cfg, matchmaking.Peers{
			Audit: a.kit.Audit(), Auth: a.kit.Auth(), Rating: a.kit.Rating(), Multiplayer: a.kit.Multiplayer()})
		if err == nil {
			a.kit.friends = built.FriendsAmong
		}
		return built, built.Capability, err
	})
	return func(o *options) {
		option(o)
		o.friends = !cfg.NoFriends
	}
}

// WithEvents composes the outbox: the events that package hooks lists are sent to other services as
// signed webhooks.
func WithEvents(cfg events.Config) Option {
	return compose(events.Name, cfg.Database, func(a *assembly, host capability.Host) (any, described, error) {
		built, err := events.New(host, cfg, events.Peers{Secrets: a.kit.Secrets(), Audit: a.kit.Audit()})
		return built, built.Capability, err
	})
}

// WithCapability composes a capability of the application's own. It is built
// after the kit's, in the order given, and finds them through the accessors.
func WithCapability(build func(*Kit) (capability.Capability, error)) Option {
	return func(o *options) { o.others = append(o.others, build) }
}
