package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"math"
	"net/http"
	"unicode/utf8"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// maxText is the maximum length of an entry, in characters.
const maxText = 500

// errInvalidText is returned if an entry is empty or too long.
var errInvalidText = capability.NewError(http.StatusBadRequest, "guestbook/invalid_text", "An entry has 1 to 500 characters.")

//go:embed migrations
var migrations embed.FS

// config is the configuration of the guestbook.
type config struct {
	// BasePath is the path prefix of the routes, by default /guestbook.
	BasePath string
}

// guestbook is a capability of the application: a table and two routes.
type guestbook struct {
	host capability.Host
	cfg  config
}

func newGuestbook(h capability.Host, cfg config) *guestbook {
	cfg.BasePath = cmp.Or(cfg.BasePath, "/guestbook")
	return &guestbook{h, cfg}
}

func (g *guestbook) capability() capability.Capability {
	return capability.Capability{
		Name: "guestbook", Version: "1.0.0", Database: g.host.DB, Prefix: g.cfg.BasePath, Migrations: migrations,
		Routes: capability.Mount(g.cfg.BasePath,
			capability.Route{Method: http.MethodGet, Path: "/entries", Guard: capability.Public("a guestbook is for everybody to read"),
				Summary: "Newest entries first.", Handle: capability.List(g.getEntries)},
			capability.Route{Method: http.MethodPost, Path: "/entries", Guard: capability.User(), Idempotent: true,
				Summary: "Write an entry.", MaxBody: 8 << 10, Refusals: []*capability.Error{errInvalidText}, Handle: capability.JSON(http.StatusCreated, g.postEntry)},
		),
		Config:   []capability.ConfigKey{{Key: "basePath", Value: g.cfg.BasePath, Summary: "Mount prefix."}},
		Refusals: []*capability.Error{errInvalidText},
		Export:   g.export,
		Erase:    g.erase,
	}
}

// export emits the entries of a user.
func (g *guestbook) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	rows, err := database.All(ctx, g.host.DB, scanEntry,
		`SELECT id, user_id, text, created_at FROM guestbook_entry WHERE user_id = $1 ORDER BY id`, person.ID)
	if err != nil {
		return err
	}
	for _, e := range rows {
		if err := emit("entry", e); err != nil {
			return err
		}
	}
	return nil
}

// erase deletes the entries of a user.
func (g *guestbook) erase(ctx context.Context, person capability.Person) (done capability.Erasure, err error) {
	done.Removed, err = g.host.DB.Exec(ctx, `DELETE FROM guestbook_entry WHERE user_id = $1`, person.ID)
	return done, err
}

// entry is an entry in the guestbook.
type entry struct {
	ID        string          `json:"id"`
	UserID    string          `json:"userId"`
	Text      string          `json:"text"`
	CreatedAt capability.Time `json:"createdAt"`
}

func scanEntry(s database.Scanner) (e entry, err error) {
	var at int64
	err = s.Scan(&e.ID, &e.UserID, &e.Text, &at)
	e.CreatedAt = capability.Millis(at)
	return e, err
}

func (g *guestbook) getEntries(c *capability.Call, page capability.Page) (items capability.Items[entry], err error) {
	at, id := int64(math.MaxInt64), ""
	if _, err := page.After(&at, &id); err != nil {
		return items, err
	}
	rows, err := database.All(c.Context(), g.host.DB, scanEntry, `
		SELECT id, user_id, text, created_at FROM guestbook_entry
		WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3`, at, id, page.Limit+1)
	return capability.Paged(page, rows, func(e entry) []any { return []any{e.CreatedAt.UnixMilli(), e.ID} }), err
}

type newEntry struct {
	Text string `json:"text"`
}

func (g *guestbook) postEntry(c *capability.Call, in newEntry) (e entry, err error) {
	if n := utf8.RuneCountInString(in.Text); n < 1 || n > maxText {
		return e, errInvalidText
	}
	err = g.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		now := g.host.DB.Now(ctx)
		e = entry{ID: rand.Text(), UserID: c.Caller.UserID, Text: in.Text, CreatedAt: capability.Time{Time: now}}
		_, err := g.host.DB.Exec(ctx, `INSERT INTO guestbook_entry (id, user_id, text, created_at) VALUES ($1, $2, $3, $4)`,
			e.ID, e.UserID, e.Text, now.UnixMilli())
		return err
	})
	return e, err
}
