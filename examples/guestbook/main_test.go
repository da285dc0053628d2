package main

import (
	"fmt"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/kittest"
)

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		return newGuestbook(h, config{BasePath: basePath}).capability(), nil
	})
}

func TestStory(t *testing.T) {
	k := kittest.New(t, options()...)
	ada := k.User("ada")
	k.Anonymous().Post("/guestbook/entries", `{"text":"hello"}`).Want(401, "auth/unauthenticated")
	ada.Post("/guestbook/entries", `{"text":""}`).Want(400, "guestbook/invalid_text")
	for i := range 3 {
		ada.Post("/guestbook/entries", fmt.Sprintf(`{"text":"hello %d"}`, i)).Want(201, "")
	}
	retry := ada.With("Idempotency-Key", "once")
	first := retry.Post("/guestbook/entries", `{"text":"again"}`).Want(201, "")
	second := retry.Post("/guestbook/entries", `{"text":"again"}`).Want(201, "")
	if string(first.Body) != string(second.Body) {
		t.Errorf("one key, two entries: %s %s", first.Body, second.Body)
	}
	var page struct {
		Items      []entry
		NextCursor *string
	}
	k.Anonymous().Get("/guestbook/entries?limit=3").Want(200, "").JSON(&page)
	if len(page.Items) != 3 || page.NextCursor == nil {
		t.Fatalf("first page: %+v", page)
	}
	k.Anonymous().Get("/guestbook/entries?limit=3&cursor="+*page.NextCursor).Want(200, "").JSON(&page)
	if len(page.Items) != 1 || page.NextCursor != nil {
		t.Errorf("last page: %+v", page)
	}
}
