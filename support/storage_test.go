package support_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
)

// TestAttachmentsLieInStorage sends a mail with a picture and a screenshot from
// the app, reads both by their links, and erases the person.
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
