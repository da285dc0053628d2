// Package hooks is the list of what an application can attach code to in a
// user's life.
//
// Every hook has two ends. A function added with [Hook.In] runs inside the
// transaction of the change: its rows commit or roll back with it, and its
// error refuses the operation. A function added with [Hook.After] runs once the
// transaction has committed, in the process that committed it; what must
// survive a killed process is a job enqueued by a function added with In.
//
// The transaction may run again after a conflict, and In with it; so such a
// function changes rows and outputs only. A panic is contained: inside, it
// refuses the operation; after, it is reported through [Hooks.OnPanic].
package hooks

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database"
)

// Hooks are the hooks of one kit, one for each thing that happens.
type Hooks struct {
	// UserCreated runs when an account is made, anonymous ones included.
	UserCreated Hook[UserCreated]
	// UserUpdated runs when a user's address, name or profile changes or an
	// address is verified.
	UserUpdated Hook[UserUpdated]
	// UserDeleted runs when an account is removed.
	UserDeleted Hook[UserDeleted]
	// SessionStarted runs when a user signs in.
	SessionStarted Hook[Session]
	// SessionUsed runs at most once a UTC day for a session that is used.
	SessionUsed Hook[Session]
	// SessionEnded runs when a session is revoked or signed out of.
	SessionEnded Hook[SessionEnded]
	// EntitlementsChanged runs when what a subject is entitled to changes.
	EntitlementsChanged Hook[EntitlementsChanged]
	// MatchEnded runs when a multiplayer session is resolved or abandoned.
	MatchEnded Hook[MatchEnded]
	// MailSuppressed runs when an address is kept from getting mail.
	MailSuppressed Hook[MailSuppressed]
	// MailUnsubscribed runs when a recipient unsubscribes.
	MailUnsubscribed Hook[MailSuppressed]
	// MediaReady runs when a media item was processed.
	MediaReady Hook[MediaReady]
	// SupportReceived runs when a message of a person, not of a program, becomes
	// part of a thread.
	SupportReceived Hook[SupportReceived]

	// OnPanic is told of panics of functions that run after a commit; nil drops
	// them. It is set before the kit serves.
	OnPanic func(hook string, value any)
}

// New returns hooks to which nothing is attached.
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

// named is a hook and what it is called.
type named struct {
	name string
	at   interface {
		Any
		init(name string, report func(string, any))
	}
}

// list names every hook.
func (h *Hooks) list() []named {
	return []named{
		{"user_created", &h.UserCreated},
		{"user_updated", &h.UserUpdated},
		{"user_deleted", &h.UserDeleted},
		{"session_started", &h.SessionStarted},
		{"session_used", &h.SessionUsed},
		{"session_ended", &h.SessionEnded},
		{"entitlements_changed", &h.EntitlementsChanged},
		{"match_ended", &h.MatchEnded},
		{"mail_suppressed", &h.MailSuppressed},
		{"mail_unsubscribed", &h.MailUnsubscribed},
		{"media_ready", &h.MediaReady},
		{"support_received", &h.SupportReceived},
	}
}

// Any is a hook whose event may be of any type, for code that treats all alike.
type Any interface {
	// Name is that of the hook in lower case, such as "user_created".
	Name() string
	// InAny is [Hook.In] for functions that take any event.
	InAny(f func(ctx context.Context, event any) error)
}

// Each calls f for every hook, in the order of the list.
func (h *Hooks) Each(f func(Any)) {
	for _, hook := range h.list() {
		f(hook.at)
	}
}

// UserCreated says that an account was made.
type UserCreated struct {
	UserID    string `json:"userId"`
	Anonymous bool   `json:"anonymous"`
}

// UserUpdated says what of an account changed.
type UserUpdated struct {
	UserID string `json:"userId"`
	// Changed names the fields: "email", "emailVerified", "name", "image",
	// "username", "profile".
	Changed []string `json:"changed"`
}

// UserDeleted says that an account was removed.
type UserDeleted struct {
	UserID string `json:"userId"`
}

// Session says which session of which user it is about.
type Session struct {
	UserID    string    `json:"userId"`
	SessionID string    `json:"sessionId"`
	At        time.Time `json:"at"`
}

// SessionEnded says which session ended and why.
type SessionEnded struct {
	UserID    string `json:"userId"`
	SessionID string `json:"sessionId"`
	// Reason is a word such as "signed_out" or "revoked".
	Reason string `json:"reason"`
}

// EntitlementsChanged says whose entitlements are others than before.
type EntitlementsChanged struct {
	// SubjectType is "user" or "organization".
	SubjectType string `json:"subjectType"`
	SubjectID   string `json:"subjectId"`
	// Granted and Revoked are the keys that the subject gained and lost.
	Granted []string `json:"granted"`
	Revoked []string `json:"revoked"`
}

// MatchEnded says how a multiplayer session ended.
type MatchEnded struct {
	SessionID string `json:"sessionId"`
	Game      string `json:"game"`
	// Ranks maps user ids to finishing places; empty when it was abandoned.
	Ranks     map[string]int `json:"ranks"`
	Abandoned bool           `json:"abandoned"`
}

// MailSuppressed says which address gets no more mail of a scope.
type MailSuppressed struct {
	// Address is the normalized address: personal data.
	Address string `json:"address"`
	// Scope is "all" or "list".
	Scope string `json:"scope"`
	// Reason is a word such as "bounce", "complaint", "unsubscribed" or "manual".
	Reason string `json:"reason"`
	// UserID is the user the mail was for, where that is known.
	UserID string `json:"userId,omitempty"`
}

// MediaReady says that the derivatives of a media item can be read.
type MediaReady struct {
	OwnerID string `json:"ownerId"`
	MediaID string `json:"mediaId"`
}

// SupportReceived says in which thread somebody wrote.
type SupportReceived struct {
	ThreadID  string `json:"threadId"`
	MessageID string `json:"messageId"`
	// UserID is the writer, empty where that is not proven.
	UserID string `json:"userId,omitempty"`
	// Opened reports whether the message is the first of its thread.
	Opened bool `json:"opened"`
}

// Hook is one thing that happens, with what is attached to it. Functions may be
// added at any time; they run in the order they were added.
type Hook[T any] struct {
	name   string
	report func(hook string, value any)
	in     list[func(context.Context, T) error]
	after  list[func(context.Context, T)]
}

func (h *Hook[T]) init(name string, report func(string, any)) { h.name, h.report = name, report }

// Name is that of the hook in lower case, such as "user_created".
func (h *Hook[T]) Name() string { return h.name }

// InAny is [Hook.In] for functions that take any event.
func (h *Hook[T]) InAny(f func(ctx context.Context, event any) error) {
	h.In(func(ctx context.Context, event T) error { return f(ctx, event) })
}

// In adds a function that runs inside the transaction of the change. Its error
// refuses the operation and rolls everything back.
func (h *Hook[T]) In(f func(ctx context.Context, event T) error) { h.in.add(f) }

// After adds a function that runs once the change has committed.
func (h *Hook[T]) After(f func(ctx context.Context, event T)) { h.after.add(f) }

// Attached reports whether anything is attached, for capabilities that would
// have to read rows to fill the event.
func (h *Hook[T]) Attached() bool { return len(h.in.all()) > 0 || len(h.after.all()) > 0 }

// Fire runs the functions added with In now, and those added with After once
// the transaction of ctx has committed. Capabilities call it inside of the
// transaction of the change.
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

// list grows by copies, so that running functions need no lock.
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
