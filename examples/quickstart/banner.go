package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
)

// printRoutes prints the route table, tab-separated: method, path, guard, scope.
func printRoutes(w io.Writer, db *database.DB) error {
	k, err := compose(db, nil, "http://localhost:8080", slog.New(slog.DiscardHandler), stores())
	if err != nil {
		return err
	}
	for _, r := range k.Routes() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Method, r.Path, r.Guard, r.Scope)
	}
	return nil
}

// printOpenAPI prints the OpenAPI document of the routes.
func printOpenAPI(w io.Writer, db *database.DB) error {
	k, err := compose(db, nil, "http://localhost:8080", slog.New(slog.DiscardHandler), stores())
	if err != nil {
		return err
	}
	doc, err := k.OpenAPI()
	if err != nil {
		return err
	}
	_, err = w.Write(doc)
	return err
}

// printBanner prints what is running and what to paste; it lists only what is composed.
func printBanner(w io.Writer, k *kit.Kit, database, keyFile string, took time.Duration) {
	base := k.BaseURL()
	line := func(name, text string) { fmt.Fprintf(w, "  %-9s%s\n", name, text) }
	fmt.Fprintf(w, "\n  kit %s · %s · %s · %d capabilities · %d routes · ready in %d ms\n",
		k.Version(), k.Environment(), database, len(k.Capabilities()), len(k.Routes()), took.Milliseconds())
	line("API", base)
	if k.Auth() != nil {
		line("Page", base+"/")
	}
	line("Health", "curl "+base+"/health")
	if k.Email() != nil {
		line("Mail", base+"/__kit/mailbox")
	}
	if k.Auth() != nil {
		line("Sign in", "curl -c jar '"+base+"/__kit/dev-login?user=ada'")
	}
	if k.Auth() != nil && k.Support() != nil {
		line("Feedback", "curl -b jar "+base+"/support/feedback")
	}
	if k.Auth() != nil && k.Testers() != nil {
		line("Testers", "curl -b jar "+base+"/testers/status")
	}
	if k.Auth() != nil && k.Ledger() != nil {
		token := `$(curl -s '` + base + `/__kit/dev-login?user=staff&scope=ledger:admin' | sed 's/.*"accessToken":"\([^"]*\)".*/\1/')`
		line("Give", `curl -H "Authorization: Bearer `+token+`" --json '{"userId":"ada","amount":100,"ref":"welcome:ada","memo":"Welcome"}' `+base+"/ledger/coins/credit")
		line("Balance", "curl -b jar "+base+"/ledger/coins")
		line("History", "curl -b jar "+base+"/ledger/coins/transactions")
	}
	if k.Auth() != nil && k.Payments() != nil {
		line("Buy", "curl -d user=ada -d product=pro "+base+"/buy && curl -b jar "+base+"/payments/entitlements")
	}
	if k.Auth() != nil && k.Vector() != nil {
		line("Note", "TOKEN=$(curl -s '"+base+"/__kit/dev-login?user=ada' | sed 's/.*\"accessToken\":\"\\([^\"]*\\)\".*/\\1/')"+
			`; curl -H "Authorization: Bearer $TOKEN" --json '{"id":"soup","text":"Lentil soup with carrots"}' `+base+"/vector/notes/documents"+
			` && curl -H "Authorization: Bearer $TOKEN" --json '{"text":"carrot soups","mode":"hybrid","include":["text"]}' `+base+"/vector/notes/query")
	}
	if k.Auth() != nil && k.Storage() != nil {
		line("Upload", upload(base))
	}
	if k.Auth() != nil && k.Media() != nil {
		line("Picture", picture(base))
	}
	if k.ControlPlane() != nil {
		line("Manage", "go run ./cmd/kit manifest -key "+keyFile)
	}
	fmt.Fprintln(w)
}

// pick returns the end of a pipe that prints a member of a JSON object.
func pick(name string) string { return ` | sed 's/.*"` + name + `":"\([^"]*\)".*/\1/'` }

// bearer returns a shell assignment of the header that identifies the caller.
func bearer(base string) string {
	return `A="Authorization: Bearer $(curl -s '` + base + `/__kit/dev-login?user=ada'` + pick("accessToken") + `)"; `
}

// upload returns a shell line that stores a file by its signed URL, shares it, and fetches the
// share without signing in.
func upload(base string) string {
	return bearer(base) +
		`U=$(curl -sH "$A" --json '{"path":"hello.txt","size":5,"contentType":"text/plain"}' ` + base + `/storage); ID=$(echo "$U"` + pick(`object":{"id`) + `); ` +
		`curl -sX PUT -H 'Content-Type: text/plain; charset=utf-8' -H 'If-None-Match: *' --data-binary hello "$(echo "$U"` + pick("url") + `)"; ` +
		`curl -sX POST -H "$A" ` + base + `/storage/$ID/complete; ` +
		`curl -s $(curl -sX POST -H "$A" ` + base + `/storage/$ID/shares` + pick("url") + `)`
}

// dot is a PNG of two pixels.
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR42mP4tjSq2nsKAA0HA1C4KmzhAAAAAElFTkSuQmCC"

// picture returns a shell line that uploads a picture, has it processed, and prints it once its
// derivatives are ready.
func picture(base string) string {
	size := base64.StdEncoding.DecodedLen(len(dot)) - strings.Count(dot, "=")
	return bearer(base) + `echo ` + dot + ` | base64 -d >dot.png; ` +
		`M=$(curl -sH "$A" --json '{"filename":"dot.png","contentType":"image/png","size":` + strconv.Itoa(size) + `}' ` + base + `/media); ID=$(echo "$M"` + pick(`item":{"id`) + `); ` +
		`curl -sX PUT -H 'Content-Type: image/png' -H 'If-None-Match: *' --data-binary @dot.png "$(echo "$M"` + pick("url") + `)"; ` +
		`curl -sX POST -H "$A" ` + base + `/media/$ID/finalize >dot.json; ` +
		`until curl -sH "$A" ` + base + `/media/$ID | tee dot.json | grep -q '"status":"\(ready\|failed\)"'; do sleep 0.2; done; cat dot.json`
}
