package auth

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

type kept struct{ mails []Mail }

func (k *kept) SendMail(_ context.Context, m Mail) error { k.mails = append(k.mails, m); return nil }

// The sender of mails: the application's own mailer, then the peers', then in development
// the log, and nobody else.
func TestWhoSendsMail(t *testing.T) {
	ctx := context.Background()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		host := capabilitytest.NewHost(t, db)
		keys := sealKeys(t, masterKey("k1", 1))
		host.Sealing = func() (capability.Sealer, error) { return keys, nil }
		mail := Mail{To: "ada@example.com", Kind: MailMagicLink, Link: "https://x.example/", Code: "123456"}
		send := func(change func(*capability.Host, *Config, *Peers)) error {
			t.Helper()
			host, cfg, peers := host, Config{AppName: "Arcade"}, Peers{}
			change(&host, &cfg, &peers)
			a, err := New(host, cfg, peers)
			if err != nil {
				t.Fatal(err)
			}
			return (&LibraryHost{a}).Mail(ctx, mail)
		}

		named := mail
		named.App = "Arcade"
		own, peer := new(kept), new(kept)
		if err := send(func(_ *capability.Host, c *Config, p *Peers) { c.Mailer, p.Mailer = own, peer }); err != nil ||
			!slices.Equal(own.mails, []Mail{named}) || len(peer.mails) != 0 {
			t.Error(own.mails, peer.mails, err)
		}
		if err := send(func(_ *capability.Host, _ *Config, p *Peers) { p.Mailer = peer }); err != nil || !slices.Equal(peer.mails, []Mail{named}) {
			t.Error(peer.mails, err)
		}
		var log bytes.Buffer
		if err := send(func(h *capability.Host, _ *Config, _ *Peers) {
			h.Environment, h.Log = capability.Development, slog.New(slog.NewTextHandler(&log, nil))
		}); err != nil || !strings.Contains(log.String(), "link=https://x.example/ code=123456") {
			t.Error(log.String(), err)
		}
		log.Reset()
		for _, environment := range []string{capability.Production, capability.Sandbox} {
			if err := send(func(h *capability.Host, c *Config, _ *Peers) {
				h.Environment, h.Log = environment, slog.New(slog.NewTextHandler(&log, nil))
				c.Library = func(capability.Host, *LibraryHost) (Library, error) { return Library{}, nil }
			}); !errors.Is(err, ErrMailUnavailable) {
				t.Errorf("%s: %v", environment, err)
			}
		}
		if got := log.String(); strings.Count(got, "auth can send no mail") != 2 || strings.Contains(got, "123456") {
			t.Error(got)
		}
	})
}
