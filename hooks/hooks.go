// Package hooks lists the events in the life of a user that an application can attach code to.
//
// Every hook has two phases. A function added with [Hook.In] runs inside the transaction of the
// change: its rows commit or roll back with it, and its error refuses the operation. A function
// added with [Hook.After] runs once the transaction has committed, in the process that committed
// it. Work that must survive a killed process is a job that a function added with In enqueues.
//
// The transaction may run again after a conflict, and the functions added with In run again with
// it; so such a function only changes rows and outputs. Panics are recovered: one inside the
// transaction refuses the operation, one after it is reported to [Hooks.OnPanic].
package hooks

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database"
)

// Hooks are the hooks of one kit, one for each event.
type Hooks struct {
	// UserCreated runs when an account is created, including an anonymous one.
	UserCreated Hook[UserCreated]
	// UserUpdated runs when the address, name or profile of a user changes or an address is
	// verified.
	UserUpdated Hook[UserUpdated]
	// UserDeleted runs when an account is deleted.
	UserDeleted Hook[UserDeleted]
	// SessionStarted runs when a user signs in.
	SessionStarted Hook[Session]
	// SessionUsed runs at most once in a UTC day for a session that is used.
	SessionUsed Hook[Session]
	// SessionEnded runs when a session is revoked or signed out.
	SessionEnded Hook[SessionEnded]
	// EntitlementsChanged runs when the entitlements of a subject change.
	EntitlementsChanged Hook[EntitlementsChanged]
	// MatchStarted runs when a multiplayer session has the players it needs and begins. A refusal
	// ends a match that matchmaking made, as match_failed with its code; after any other error that
	// match is tried again.
	MatchStarted Hook[MatchStarted]
	// MatchEnded runs when a multiplayer session is resolved or abandoned.
	MatchEnded Hook[MatchEnded]
	// MailSuppressed runs when an address is suppressed and gets no more mail.
	MailSuppressed Hook[MailSuppressed]
	// MailUnsubscribed runs when a recipient unsubscribes.
	MailUnsubscribed Hook[MailSuppressed]
	// MediaReady runs when a media item has been processed.
	MediaReady Hook[MediaReady]
	// MediaDeleted runs when its owner or the application deletes a media item, in whatever state.
	// The erasure of a user calls the Erase of every capability instead.
	MediaDeleted Hook[MediaDeleted]
	// SupportReceived runs when a message of a person, not of a program, is added to a thread.
	SupportReceived Hook[SupportReceived]

	// OnPanic is called with the panics of functions that run after a commit; if it is nil, they
	// are dropped. Set it before the kit serves.
	OnPanic func(hook string, value any)
}

// New returns hooks without functions.
func New() *Hooks {
	h := &Hooks{}
	report := func(hook string, value any) {
		if h.OnPanic != nil {
			h.OnPanic(hook, value)
		}
	}
	for _, hook := range h.list() {
		hook.at.init(hook.name, report)
	}
	return h
}

// named is a hook with its name.
type named struct {
	name string
	at   interface {
		Any
		init(name string, report func(string, any))
	}
}

// list returns every hook.
func (h *Hooks) list() []named {
	return []named{
		{"user_created", &h.UserCreated},
		{"user_updated", &h.UserUpdated},
		{"user_deleted", &h.UserDeleted},
		{"session_started", &h.SessionStarted},
		{"session_used", &h.SessionUsed},
		{"session_ended", &h.SessionEnded},
		{"entitlements_changed", &h.EntitlementsChanged},
		{"match_started", &h.MatchStarted},
		{"match_ended", &h.MatchEnded},
		{"mail_suppressed", &h.MailSuppressed},
		{"mail_unsubscribed", &h.MailUnsubscribed},
		{"media_ready", &h.MediaReady},
		{"media_deleted", &h.MediaDeleted},
		{"support_received", &h.SupportReceived},
	}
}

// Any is a hook of any event type, for code that treats all hooks alike.
type Any interface {
	// Name returns the name of the hook in lower case, such as "user_created".
	Name() string
	// InAny is [Hook.In] for functions that accept any event.
	InAny(f func(ctx context.Context, event any) error)
}

// Each calls f for every hook, in a fixed order.
func (h *Hooks) Each(f func(Any)) {
	for _, hook := range h.list() {
		f(hook.at)
	}
}

// UserCreated is the event of an account that was created.
type UserCreated struct {
	UserID    string `json:"userId"`
	Anonymous bool   `json:"anonymous"`
}

// UserUpdated is the event of an account that changed.
type UserUpdated struct {
	UserID string `json:"userId"`
	// Changed lists the fields: "email", "emailVerified", "name", "image", "username", "profile".
	Changed []string `json:"changed"`
}

// UserDeleted is the event of an account that was deleted.
type UserDeleted struct {
	UserID string `json:"userId"`
}

// Session is the event of a session that started or was used.
type Session struct {
	UserID    string    `json:"userId"`
	SessionID string    `json:"sessionId"`
	At        time.Time `json:"at"`
}

// SessionEnded is the event of a session that ended.
type SessionEnded struct {
	UserID    string `json:"userId"`
	SessionID string `json:"sessionId"`
	// Reason is a code such as "signed_out" or "revoked".
	Reason string `json:"reason"`
}

// EntitlementsChanged is the event of a subject whose entitlements changed.
type EntitlementsChanged struct {
	// SubjectType is "user" or "organization".
	SubjectType string `json:"subjectType"`
	SubjectID   string `json:"subjectId"`
	// Granted and Revoked are the keys of the entitlements that the subject gained and lost.
	Granted []string `json:"granted"`
	Revoked []string `json:"revoked"`
}

// MatchStarted is the event of a multiplayer session that began.
type MatchStarted struct {
	SessionID string `json:"sessionId"`
	Game      string `json:"game"`
	// Players are the user ids in the order of their seats; others may join a table later.
	Players []string `json:"players"`
}

// MatchEnded is the event of a multiplayer session that ended.
type MatchEnded struct {
	SessionID string `json:"sessionId"`
	Game      string `json:"game"`
	// Ranks maps user ids to finishing places; it is empty if the session was abandoned.
	Ranks     map[string]int `json:"ranks"`
	Abandoned bool           `json:"abandoned"`
}

// MailSuppressed is the event of an address that gets no more mail of a scope.
type MailSuppressed struct {
	// Address is the normalized address, which is personal data.
	Address string `json:"address"`
	// Scope is "all" or "list".
	Scope string `json:"scope"`
	// Reason is a code such as "bounce", "complaint", "unsubscribed" or "manual".
	Reason string `json:"reason"`
	// UserID is the user the mail was for, if known.
	UserID string `json:"userId,omitempty"`
}

// MediaReady is the event of a media item whose derivatives can be read.
type MediaReady struct {
	OwnerID string `json:"ownerId"`
	MediaID string `json:"mediaId"`
}

// MediaDeleted is the event of a media item that is gone with its files.
type MediaDeleted struct {
	OwnerID string `json:"ownerId"`
	MediaID string `json:"mediaId"`
}

// SupportReceived is the event of a message that was added to a thread.
type SupportReceived struct {
	ThreadID  string `json:"threadId"`
	MessageID string `json:"messageId"`
	// UserID is the author, empty if unproven.
	UserID string `json:"userId,omitempty"`
	// Opened reports whether the message is the first of its thread.
	Opened bool `json:"opened"`
}

// Hook is one event with the functions attached to it. Functions may be added at any time; they run
// in the order they were added.
type Hook[T any] struct {
	name   string
	report func(hook string, value any)
	in     list[func(context.Context, T) error]
	after  list[func(context.Context, T)]
}

func (h *Hook[T]) init(name string, report func(string, any)) { h.name, h.report = name, report }

// Name returns the name of the hook in lower case, such as "user_created".
func (h *Hook[T]) Name() string { return h.name }

// InAny is [Hook.In] for functions that accept any event.
func (h *Hook[T]) InAny(f func(ctx context.Context, event any) error) {
	h.In(func(ctx context.Context, event T) error { return f(ctx, event) })
}

// In adds a function that runs inside the transaction of the change. Its error refuses the
// operation and rolls back the transaction.
func (h *Hook[T]) In(f func(ctx context.Context, event T) error) { h.in.add(f) }

// After adds a function that runs once the change has committed.
func (h *Hook[T]) After(f func(ctx context.Context, event T)) { h.after.add(f) }

// Attached reports whether the hook has functions, for capabilities that would have to read rows to
// fill the event.
func (h *Hook[T]) Attached() bool { return len(h.in.all()) > 0 || len(h.after.all()) > 0 }

// Fire runs the functions added with In immediately, and those added with After once the
// transaction of ctx has committed. Capabilities call it inside the transaction of the change.
func (h *Hook[T]) Fire(ctx context.Context, event T) error {
	for _, f := range h.in.all() {
		if err := h.contained(ctx, f, event); err != nil {
			return err
		}
	}
	if after := h.after.all(); len(after) > 0 {
		database.AfterCommit(ctx, func() {
			done := database.Outside(context.WithoutCancel(ctx))
			for _, f := range after {
				h.run(done, f, event)
			}
		})
	}
	return nil
}

func (h *Hook[T]) contained(ctx context.Context, f func(context.Context, T) error, event T) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("hooks: a function of %s panicked: %v", h.name, value)
		}
	}()
	return f(ctx, event)
}

func (h *Hook[T]) run(ctx context.Context, f func(context.Context, T), event T) {
	defer func() {
		if value := recover(); value != nil && h.report != nil {
			h.report(h.name, value)
		}
	}()
	f(ctx, event)
}

// list is copied when it grows, so that running the functions needs no lock.
type list[F any] struct{ items atomic.Pointer[[]F] }

func (l *list[F]) all() []F {
	if p := l.items.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *list[F]) add(f F) {
	for {
		old := l.items.Load()
		var items []F
		if old != nil {
			items = append(items, *old...)
		}
		items = append(items, f)
		if l.items.CompareAndSwap(old, &items) {
			return
		}
	}
}
