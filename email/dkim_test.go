package email_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
)

func testKeys(t testing.TB) []email.DKIM {
	t.Helper()
	one, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, two, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return []email.DKIM{{Domain: "acme.example", Selector: "rsa", Key: one}, {Domain: "acme.example", Selector: "ed", Key: two}}
}

// signedMail returns a list mail as received by a server.
func signedMail(t *testing.T, keys []email.DKIM) []byte {
	t.Helper()
	srv := serve(t, nil)
	s := open(t, databasetest.Memory(t), email.Config{DKIM: keys, Providers: []email.Provider{srv.provider(t, "relay")}})
	s.send(email.Message{To: "Ada <ada@example.com>", Category: email.CategoryList, Subject: "Grüße", HTML: "<p>Hi</p>", Text: "Hi\n.dot\n\n\n"})
	s.runJobs()
	if len(srv.mails()) != 1 {
		t.Fatal("nothing was sent")
	}
	return srv.mails()[0]
}

func TestDKIM(t *testing.T) {
	keys := testKeys(t)
	mail := signedMail(t, keys)
	records := map[string]string{}
	for _, key := range keys {
		name, text := key.Record()
		records[name] = text
	}
	options := &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
		return []string{records[strings.TrimSuffix(name, ".")]}, nil
	}}
	verify := func(mail []byte) (good int) {
		t.Helper()
		results, err := dkim.VerifyWithOptions(bytes.NewReader(mail), options)
		if err != nil || len(results) != 2 {
			t.Fatalf("%d signatures, %v", len(results), err)
		}
		for _, r := range results {
			if r.Err == nil {
				good++
				signed := strings.ToLower(strings.Join(r.HeaderKeys, " "))
				if !strings.Contains(signed, "list-unsubscribe list-unsubscribe-post") {
					t.Errorf("signed: %s", signed)
				}
			}
		}
		return good
	}
	if good := verify(mail); good != 2 {
		t.Errorf("%d of 2 signatures verify", good)
	}
	forged := map[string][]byte{
		"body":            bytes.Replace(mail, []byte("\r\nHi\r\n"), []byte("\r\nHo\r\n"), 1),
		"unsubscribe":     bytes.Replace(mail, []byte("List-Unsubscribe: <https://app"), []byte("List-Unsubscribe: <https://evil"), 1),
		"a second from":   bytes.Replace(mail, []byte("\r\nFrom: "), []byte("\r\nFrom: eve@evil.example\r\nFrom: "), 1),
		"another subject": bytes.Replace(mail, []byte("\r\nSubject: "), []byte("\r\nSubject: x"), 1),
	}
	for _, name := range email.SignedHeaders {
		forged["another "+name] = append([]byte(name+": added\r\n"), mail...)
	}
	for name, altered := range forged {
		if bytes.Equal(altered, mail) {
			t.Fatalf("%s: not altered", name)
		}
		if good := verify(altered); good != 0 {
			t.Errorf("%s: %d signatures still verify", name, good)
		}
	}
}

const dkimpy = `
import sys, json, dkim
records = json.loads(sys.argv[1]); mail = sys.stdin.buffer.read()
def dns(name, timeout=5):
    return records[name.decode().rstrip(".")].encode()
for i in range(2):
    print(dkim.DKIM(mail).verify(i, dnsfunc=dns))
`

// TestDKIMElsewhere verifies with dkimpy, run by the python that KIT_TEST_DKIM names.
func TestDKIMElsewhere(t *testing.T) {
	python := os.Getenv("KIT_TEST_DKIM")
	if python == "" {
		t.Skip("KIT_TEST_DKIM is not set")
	}
	keys := testKeys(t)
	records := map[string]string{}
	for _, key := range keys {
		name, text := key.Record()
		records[name] = text
	}
	encoded, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", dkimpy, string(encoded))
	cmd.Stdin = bytes.NewReader(signedMail(t, keys))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != "True\nTrue" {
		t.Errorf("%v: %s", err, out)
	}
}

// BenchmarkDKIM measures one signature.
func BenchmarkDKIM(b *testing.B) {
	keys := testKeys(b)
	mail := []byte("From: hello@acme.example\r\nTo: ada@example.com\r\nSubject: s\r\n\r\n" + strings.Repeat("a line of text\r\n", 50))
	for i, name := range []string{"rsa2048", "ed25519"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := email.Sign(keys[i:i+1], mail); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/signature")
		})
	}
}
