package support_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/support"
)

// TestFiles stores attachments in a map.
func TestFiles(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		staged, kept := map[string]string{}, map[string]string{}
		broken, ended, unknown := false, false, false
		host := capabilitytest.NewHost(t, db)
		host.Hooks.SupportReceived.In(func(context.Context, hooks.SupportReceived) error {
			if unknown { // as after a commit whose response is lost
				return database.ErrUnknownOutcome
			}
			return nil
		})
		s, err := support.New(host, support.Config{InboundAddresses: []string{inbox}}, support.Peers{Files: support.Files{
			Keep: func(ctx context.Context, name, kind string, content []byte) (string, error) {
				if broken {
					return "", errors.New("no space")
				}
				if db.InTransaction(ctx) {
					t.Error("bytes move within a transaction")
				}
				staged["mail/"+name] = kind + " " + string(content)
				return "mail/" + name, nil
			},
			Commit: func(ctx context.Context, objectID string) error {
				content, found := staged[objectID]
				if !found || ended {
					return capability.ErrNotFound
				}
				if !db.InTransaction(ctx) {
					t.Error("a file is committed without its message")
				}
				kept[objectID] = content
				return nil
			},
			Owned: func(_ context.Context, userID, objectID string) (support.File, bool, error) {
				return support.File{Name: "screen.png", Type: "image/png", Size: 7}, userID == "ada" && objectID == "hers", nil
			},
			Links: func(_ context.Context, ids []string, lifetime time.Duration) (map[string]string, error) {
				urls := map[string]string{}
				for _, id := range ids {
					urls[id] = "https://files.example/" + id + "?for=" + lifetime.String()
				}
				return urls, nil
			},
			Remove: func(_ context.Context, objectID string) error { delete(kept, objectID); return nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		part := s.Capability()
		if err := host.Jobs.Register(part.Jobs...); err != nil {
			t.Fatal(err)
		}
		if err := db.Migrate(t.Context(), append([]database.Migrations{jobs.Migrations()}, part.Lines()...)...); err != nil {
			t.Fatal(err)
		}
		raw := []byte(multipart("mixed", "Content-Type: text/plain\n\ntext", "Content-Type: image/png; name=p.png\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n"))
		envelope := support.Envelope{From: "a@b.example", To: []string{inbox}}
		broken = true
		if _, err := s.Receive(t.Context(), envelope, raw); err == nil {
			t.Error("a mail whose file could not be kept was acknowledged")
		}
		broken = false
		ended = true
		if _, err := s.Receive(t.Context(), envelope, raw); capability.AsError(err).Status != http.StatusServiceUnavailable {
			t.Errorf("a mail whose file has ended: %v, want one that is sent again", err)
		}
		ended = false
		unknown = true
		if _, err := s.Receive(t.Context(), envelope, raw); !errors.Is(err, database.ErrUnknownOutcome) || kept["mail/p.png"] == "" {
			t.Errorf("%v, kept %v: want the file of a mail that may be stored", err, kept)
		}
		unknown = false
		got, err := s.Receive(t.Context(), envelope, raw)
		if err != nil || got.Outcome != support.OutcomeStored || kept["mail/p.png"] != "image/png hello" {
			t.Fatalf("%+v, %v, kept %v", got, err, kept)
		}
		detail, err := s.Thread(t.Context(), got.ThreadID)
		if err != nil || detail.Messages[0].Attachments[0].URL == nil || *detail.Messages[0].Attachments[0].URL != "https://files.example/mail/p.png?for=5m0s" {
			t.Errorf("%+v, %v", detail.Messages[0].Attachments, err)
		}
		ticket, _, err := s.Submit(t.Context(), support.Feedback{UserID: "ada", Message: "Look", Attachments: []string{"hers"}})
		if err != nil || ticket.Messages[0].Attachments[0].Name != "screen.png" || ticket.Messages[0].Attachments[0].URL == nil {
			t.Errorf("%+v, %v", ticket.Messages, err)
		}
		_, _, err = s.Submit(t.Context(), support.Feedback{UserID: "eve", Message: "Look", Attachments: []string{"hers"}})
		if !errors.Is(err, capability.ErrInvalidRequest) {
			t.Errorf("somebody else's object: %v", err)
		}
		if _, err := s.Erase(t.Context(), capability.Person{ID: "x", Emails: []string{"a@b.example"}}); err != nil || len(kept) != 0 {
			t.Errorf("after the erasure: %v, %v", kept, err)
		}
	})
}
