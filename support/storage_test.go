package support_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
)

// TestAttachmentsLieInStorage sends a mail with a picture, and a screenshot from the app, reads
// both by their links, and erases the person.
func TestAttachmentsLieInStorage(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := desk(t, support.Config{}, kit.WithDatabase(db), kit.WithStorage(storage.Config{}))
		got := receive(t, k, "a@b.example", multipart("mixed", "Content-Type: text/plain\n\ntext",
			"Content-Type: image/png; name=p.png\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n"))
		read := func(url *string, want string) {
			t.Helper()
			if url == nil {
				t.Fatal("there is no link")
			}
			if r := k.Anonymous().Get(bare(*url)); r.Status != http.StatusOK || string(r.Body) != want {
				t.Errorf("%s: %d %q, want %q", *url, r.Status, r.Body, want)
			}
		}
		mailed := thread(t, k, got.ThreadID).Messages[0].Attachments[0]
		read(mailed.URL, "hello")
		if err := k.Auth().EnsureUser(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		screen, err := k.Storage().Put(t.Context(), storage.Upload{OwnerID: "ada", Path: "screen.png", Size: 6, ContentType: "image/png"}, bytes.NewReader([]byte("screen")))
		if err != nil {
			t.Fatal(err)
		}
		body := map[string]any{"message": "Look", "attachments": []string{screen.ID}}
		k.User("eve").Post("/support/feedback", body).Want(400, "kit/invalid_request")
		ticket := object(t, k.User("ada").Post("/support/feedback", body).Want(201, ""))
		id, _ := ticket["id"].(string)
		shown := thread(t, k, id).Messages[0].Attachments[0]
		if shown.Name != "screen.png" {
			t.Errorf("the screenshot is called %s", shown.Name)
		}
		read(shown.URL, "screen")
		if _, err := k.Support().Erase(t.Context(), capability.Person{ID: "ada", Emails: []string{"a@b.example"}}); err != nil {
			t.Fatal(err)
		}
		if r := k.Anonymous().Get(bare(*mailed.URL)); r.Status == http.StatusOK {
			t.Error("the mail's file is still there")
		}
		if _, err := k.Storage().Get(t.Context(), storage.ByID(screen.ID)); err != nil {
			t.Errorf("the user's own file went with the thread: %v", err)
		}
	})
}

func TestMailWithAFileThatStorageRefuses(t *testing.T) {
	k := desk(t, support.Config{}, kit.WithStorage(storage.Config{MaxObjectBytes: 4}))
	got := receive(t, k, "a@b.example", multipart("mixed", "Content-Type: text/plain\n\nPlease help",
		"Content-Type: image/png; name=large.png\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n",
		"Content-Type: image/png; name=larger.png\n\nlarger",
		"Content-Type: image/png; name=small.png\n\nhi"))
	m := thread(t, k, got.ThreadID).Messages[0]
	if diff := cmp.Diff([]string{"attachment_refused"}, m.Warnings); diff != "" {
		t.Error(diff)
	}
	kept := map[string]bool{}
	for _, a := range m.Attachments {
		kept[a.Name] = a.URL != nil
	}
	if diff := cmp.Diff(map[string]bool{"large.png": false, "larger.png": false, "small.png": true}, kept); diff != "" {
		t.Errorf("kept: %s", diff)
	}
}

func TestEveryFileNameIsOneThatStorageTakes(t *testing.T) {
	k := desk(t, support.Config{}, kit.WithStorage(storage.Config{}))
	for i, name := range []string{
		"a..b.png", "con.txt", "übung (1).png", "..", "a%2fb.png", "a;b.png", "tab\tname.png", "a\u200bb.png", "e\u0301.png", "~x", "a#b?c.png",
		strings.Repeat("ä", 150) + ".png", "emoji\U0001F600.png", "\ufffd.png", "x\ufeff.png", "\u00a0.png", "a//b", "a\U000e0001b.png", "\ue000.png",
		"a\ufffe.png", "a\U0010ffff.png", "\ufdd0", "\uffff..\uffff",
	} {
		got := receive(t, k, "a@b.example", multipart("mixed", fmt.Sprintf("Content-Type: text/plain\n\nPlease help with %d", i),
			"Content-Type: image/png\nContent-Disposition: attachment; filename=\""+name+"\"\n\nhello"))
		if m := thread(t, k, got.ThreadID).Messages[0]; m.Attachments[0].URL == nil || len(m.Warnings) != 0 {
			t.Errorf("%q was not kept as %q: %v", name, m.Attachments[0].Name, m.Warnings)
		}
		k.Clock.Advance(time.Hour)
	}
}
