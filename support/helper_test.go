package support_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/support"
)

const inbox = "help@acme.example"

// desk composes support with an inbound address, unless the configuration sets others.
func desk(t testing.TB, cfg support.Config, opts ...kit.Option) *kittest.Kit {
	t.Helper()
	if cfg.InboundAddresses == nil {
		cfg.InboundAddresses = []string{inbox}
	}
	return kittest.New(t, append([]kit.Option{
		kit.WithAudit(audit.Config{}), kit.WithSecrets(secrets.Config{}), kit.WithControlPlane(controlplane.Config{}),
		kit.WithEmail(email.Config{From: "Acme <hello@acme.example>"}), kit.WithAuth(auth.Config{}), kit.WithSupport(cfg),
	}, opts...)...)
}

// each runs a test on every database.
func each(t *testing.T, cfg support.Config, run func(t *testing.T, k *kittest.Kit)) {
	t.Helper()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, desk(t, cfg, kit.WithDatabase(db))) })
}

// mail returns a mail; headers are lines.
func mail(from, subject, text string, headers ...string) string {
	id := fmt.Sprintf("<%x@mail.example>", len(from)+len(subject)*1000+len(text)*1000000)
	for _, h := range headers {
		if strings.HasPrefix(h, "Message-ID:") {
			id = ""
		}
	}
	lines := []string{"From: " + from, "To: " + inbox, "Subject: " + subject, "MIME-Version: 1.0"}
	if id != "" {
		lines = append(lines, "Message-ID: "+id)
	}
	return strings.Join(append(lines, headers...), "\r\n") + "\r\n\r\n" + strings.ReplaceAll(text, "\n", "\r\n") + "\r\n"
}

// receive receives a mail from the address of its From field and fails the test unless it is
// stored.
func receive(t testing.TB, k *kittest.Kit, from, raw string) support.Receipt {
	t.Helper()
	receipt, err := k.Support().Receive(t.Context(), support.Envelope{From: from, To: []string{inbox}}, []byte(raw))
	if err != nil || receipt.Outcome != support.OutcomeStored {
		t.Fatalf("receive: %+v, %v; want stored", receipt, err)
	}
	return receipt
}

func thread(t testing.TB, k *kittest.Kit, id string) support.ThreadDetail {
	t.Helper()
	detail, err := k.Support().Thread(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

func count(t testing.TB, k *kittest.Kit) int {
	t.Helper()
	items, err := k.Support().ListThreads(t.Context(), support.Filter{}, capability.NewPage(200, ""))
	if err != nil {
		t.Fatal(err)
	}
	return len(items.Items)
}

// member creates a user with a verified address.
func member(t testing.TB, k *kittest.Kit, address string) auth.User {
	t.Helper()
	user, err := k.Auth().CreateUser(t.Context(), auth.NewUser{Email: address, EmailVerified: true, Name: "Ada"})
	if err != nil {
		t.Fatal(err)
	}
	return user
}

func object(t testing.TB, r *kittest.Response) map[string]any {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal(r.Body, &value); err != nil {
		t.Fatalf("%v: %s", err, r.Body)
	}
	return value
}

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		s, err := support.New(h, support.Config{BasePath: basePath}, support.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return s.Capability(), nil
	})
}

func newest(t testing.TB, k *kittest.Kit) string {
	t.Helper()
	items, err := k.Support().ListThreads(t.Context(), support.Filter{}, capability.NewPage(1, ""))
	if err != nil || len(items.Items) == 0 {
		t.Fatalf("no thread: %v", err)
	}
	return items.Items[0].ID
}

// bare removes the origin of the kit from a link.
func bare(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.RequestURI()
}
