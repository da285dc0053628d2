package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/internal/browsertest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/vector"
)

func TestWelcome(t *testing.T) {
	k := kittest.New(t, options("http://localhost:8080", nil)...)
	var w welcomed
	k.User("ada").Post("/notes/welcome", nil).Want(200, "").JSON(&w)
	k.User("ada").Post("/notes/welcome", nil).Want(200, "").JSON(&w)
	if w.Notes != 12 {
		t.Errorf("%+v", w)
	}
	var all capability.Items[vector.Stored]
	k.User("ada").Get("/notes/all").Want(200, "").JSON(&all)
	if len(all.Items) != 12 {
		t.Errorf("%d notes", len(all.Items))
	}
}

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(capability.Host, string) (capability.Capability, error) {
		c := notes{}.capability()
		c.Prefix = "" // mounted where the page expects it
		return c, nil
	})
}

// TestPage searches while typing in a real browser, writes a note, finds it by a word and deletes
// it.
func TestPage(t *testing.T) {
	b := browsertest.Start(t)
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer server.Close()
	k, err := kit.New(append(options(server.URL, nil), kit.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if handler, err = application(k); err != nil {
		t.Fatal(errors.Join(err))
	}
	tab := b.Open(server.URL + "/#ada")
	tab.Until(`document.querySelectorAll("#notes li").length === 12`)
	tab.Picture("notes")
	typed := func(query string) (first string) {
		tab.Run(`const box = document.getElementById("query"); box.value = ""
			for (const letter of `+"`"+query+"`"+`) { box.value += letter; box.dispatchEvent(new Event("input")) }
			await until(() => document.getElementById("notes").dataset.query === `+"`"+query+"`"+`.trim())
			return document.querySelector("#notes li p")?.textContent ?? ""`, &first)
		return first
	}
	for query, want := range map[string]string{"lentil soups": "Lentil soup", "baking a sourdough": "Sourdough", "night tr": "Train to Vienna", "</script>'\" OR *": ""} {
		if got := typed(query); !strings.HasPrefix(got, want) {
			t.Errorf("%s finds %q first, want %q", query, got, want)
		}
	}
	typed("carrots")
	tab.Picture("notes-found")
	tab.Run(`document.querySelector("#colours .green").click(); await until(() => [...document.querySelectorAll("#notes li")].every((li) => li.className === "green"))
		document.querySelector("#colours .green").click()`, nil)
	tab.Run(`document.getElementById("text").value = "<b>The spare key</b> is under the third flower pot"; document.querySelector("#write button").click()
		await until(() => document.getElementById("text").value === "")`, nil)
	if got := typed("spare keys"); got != "<b>The spare key</b> is under the third flower pot" {
		t.Errorf("the new note is not first: %q", got)
	}
	tab.Run(`document.querySelector("#notes li button").click(); await until(() => !document.getElementById("notes").textContent.includes("spare key"))`, nil)
	for _, complaint := range tab.Complaints() {
		t.Error(complaint)
	}
	tab.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": true}, nil)
	typed("carrots")
	tab.Picture("notes-narrow")
	var wide bool
	if tab.Run(`return document.documentElement.scrollWidth > innerWidth`, &wide); wide {
		t.Error("a narrow page scrolls sideways")
	}
}
