package kit_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
)

// TestResponsesAreThoseOfTheDocument calls every row as a caller that its guard
// admits and as nobody: each status and body must be one the document allows.
func TestResponsesAreThoseOfTheDocument(t *testing.T) {
	k := composed(t)
	k.Anonymous().Get("/control-plane/ping") // connects
	document := readDocument(t, k)
	for _, r := range k.Routes() {
		if document.paths[braced(r.Path)][strings.ToLower(r.Method)] == nil {
			continue // serves any method, or is the library's
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			k.Clock.Advance(time.Minute)
			for _, caller := range []*kittest.Client{k.Anonymous(), admittedBy(k, r)} {
				var body any
				if r.Method != "GET" && r.Method != "HEAD" {
					body = map[string]any{}
				}
				document.check(t, r, caller.Do(r.Method, concrete(r.Path), body))
			}
		})
	}
}

// TestRefusalsOfLargeBodiesHaveTheLimit sends every row that takes a body one byte more than the
// document says it may have.
func TestRefusalsOfLargeBodiesHaveTheLimit(t *testing.T) {
	k := composed(t)
	k.Anonymous().Get("/control-plane/ping") // connects
	document := readDocument(t, k)
	over := func(method, path string, caller *kittest.Client, code string) {
		t.Helper()
		op := document.paths[braced(path)][strings.ToLower(method)]
		if op == nil || !slices.Contains(op.Codes, code) || strings.HasSuffix(path, "/:token") { // the token is checked first
			return
		}
		k.Clock.Advance(time.Minute)
		limit := cmp.Or(op.MaxBody, capability.DefaultMaxBody)
		got := caller.With("Idempotency-Key", "large").Do(method, concrete(path), strings.Repeat(" ", limit+1))
		if got.Status != 413 {
			t.Errorf("%s %s: %d %s, expected %s", method, path, got.Status, got.Body, code)
			return
		}
		var body struct {
			Error struct{ Details capability.BodyLimit }
		}
		if got.JSON(&body); body.Error.Details.MaxBytes != int64(limit) {
			t.Errorf("%s %s: %s, expected the limit of %d", method, path, got.Body, limit)
		}
	}
	for _, r := range k.Routes() {
		over(r.Method, r.Path, admittedBy(k, r), "kit/body_too_large")
	}
	for _, r := range k.Auth().LibraryRoutes() {
		over(r.Method, "/auth"+r.Path, k.User("ada"), "PAYLOAD_TOO_LARGE")
	}
}

// TestBodiesThatMayBeEmptyMayBeAbsent: a row whose members all may be omitted takes no body as {}.
func TestBodiesThatMayBeEmptyMayBeAbsent(t *testing.T) {
	k := composed(t)
	k.Anonymous().Get("/control-plane/ping") // connects
	rows := []string{
		"POST /auth/admin/users/:userId/devices/revoke", "POST /payments/portal", "POST /storage/:id/complete",
		"POST /storage/:id/shares", "POST /media/:id/finalize", "POST /support/threads/:id/archive",
		"POST /support/threads/:id/reclassify", "POST /matchmaking/games/:game/queue", "POST /secrets/admin/status/:name/rotate",
	}
	for _, r := range k.Routes() {
		if !slices.Contains(rows, r.Method+" "+r.Path) {
			continue
		}
		rows = slices.DeleteFunc(rows, func(row string) bool { return row == r.Method+" "+r.Path })
		call := func(body any) string {
			got := admittedBy(k, r).Do(r.Method, concrete(r.Path), body)
			return fmt.Sprint(got.Status, " ", got.Code())
		}
		if none, empty := call(nil), call("{}"); none != empty {
			t.Errorf("%s %s: %s without a body, expected %s as with {}", r.Method, r.Path, none, empty)
		}
	}
	if len(rows) > 0 {
		t.Errorf("there are no rows %q", rows)
	}
}

// TestEmptyIdempotencyKeysAreRefused: a client that sends one believes that its repetitions count
// once.
func TestEmptyIdempotencyKeysAreRefused(t *testing.T) {
	k := composed(t)
	document := readDocument(t, k)
	emptied := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header["Idempotency-Key"] = []string{""}
		k.ServeHTTP(w, r)
	})
	rows := 0
	for _, r := range k.Routes() {
		op := document.paths[braced(r.Path)][strings.ToLower(r.Method)]
		if op == nil || !slices.ContainsFunc(op.Parameters, func(p parameter) bool { return p.In == "header" && p.Name == "Idempotency-Key" }) {
			continue
		}
		rows++
		got := admittedBy(k, r).Via(emptied).Do(r.Method, concrete(r.Path), map[string]any{})
		if got.Status != 400 || got.Code() != "kit/invalid_request" || !strings.Contains(string(got.Body), "Idempotency-Key") {
			t.Errorf("%s %s: %d %s", r.Method, r.Path, got.Status, got.Body)
		}
	}
	if rows < 6 {
		t.Errorf("%d rows have the header", rows)
	}
}

func admittedBy(k *kittest.Kit, r kit.Route) *kittest.Client {
	switch {
	case r.Guard == "control-plane":
		return k.Machine(r.Scope)
	case r.Guard == "user" && strings.Contains(r.Scope, ":"):
		return k.User("ada", r.Scope)
	case r.Guard == "user":
		return k.User("ada")
	default:
		return k.Anonymous()
	}
}

type described struct {
	paths      map[string]map[string]*operation
	responses  map[string]content
	components map[string]*jsonschema.Schema
	resolved   map[*jsonschema.Schema]*jsonschema.Resolved
}

type operation struct {
	Responses   map[string]content `json:"responses"`
	Parameters  []parameter        `json:"parameters"`
	RequestBody content            `json:"requestBody"`
	MaxBody     int                `json:"x-kit-max-body"`
	Codes       []string           `json:"x-kit-codes"`
}

type parameter struct {
	Name   string
	In     string
	Schema *jsonschema.Schema
}

type content struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema   *jsonschema.Schema `json:"schema"`
		Examples map[string]struct {
			Value json.RawMessage `json:"value"`
		} `json:"examples"`
	} `json:"content"`
}

// readDocument reads the document of a kit; its components become the definitions of each schema.
func readDocument(t testing.TB, k *kittest.Kit) described {
	t.Helper()
	raw, err := k.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]map[string]*operation `json:"paths"`
		Components struct {
			Responses map[string]content            `json:"responses"`
			Schemas   map[string]*jsonschema.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(bytes.ReplaceAll(raw, []byte("#/components/schemas/"), []byte("#/$defs/")), &doc); err != nil {
		t.Fatal(err)
	}
	return described{doc.Paths, doc.Components.Responses, doc.Components.Schemas, make(map[*jsonschema.Schema]*jsonschema.Resolved)}
}

var reference = regexp.MustCompile(`"#/\$defs/([^"/]+)"`)

// define collects the components that a schema refers to: to resolve all of them for
// each schema takes seconds.
func (d described) define(t *testing.T, schema *jsonschema.Schema, defs map[string]*jsonschema.Schema) {
	t.Helper()
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range reference.FindAllSubmatch(text, -1) {
		name := string(match[1])
		component := d.components[name]
		if _, known := defs[name]; known || component == nil {
			continue
		}
		defs[name] = component
		d.define(t, component, defs)
	}
}

func (d described) check(t *testing.T, r kit.Route, got *kittest.Response) {
	t.Helper()
	responses := d.paths[braced(r.Path)][strings.ToLower(r.Method)].Responses
	_, written := responses["default"] // by the handler itself, as a page perhaps
	if written && !strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") {
		return
	}
	allowed, ok := responses[strconv.Itoa(got.Status)]
	if !ok {
		if !written {
			t.Errorf("the document has no response %d: %s", got.Status, got.Body)
		}
		return
	}
	if name, ok := strings.CutPrefix(allowed.Ref, "#/components/responses/"); ok {
		allowed = d.responses[name]
	}
	schema := allowed.Content["application/json"].Schema
	if schema == nil || len(got.Body) == 0 {
		return
	}
	var value any
	got.JSON(&value)
	if err := d.resolve(t, schema).Validate(value); err != nil {
		t.Errorf("%d %s is not what the document says: %v", got.Status, got.Body, err)
	}
}

// resolve makes a schema of the document ready to validate, once.
func (d described) resolve(t *testing.T, schema *jsonschema.Schema) *jsonschema.Resolved {
	t.Helper()
	if resolved := d.resolved[schema]; resolved != nil {
		return resolved
	}
	whole := *schema
	whole.Defs = make(map[string]*jsonschema.Schema)
	d.define(t, schema, whole.Defs)
	resolved, err := whole.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	d.resolved[schema] = resolved
	return resolved
}

// named returns what holds a response to a refusal that the document names for the row.
func named(t *testing.T, k *kittest.Kit) func(got *kittest.Response, row string, status int, code string) {
	t.Helper()
	_, paths := document(t, k)
	return func(got *kittest.Response, row string, status int, code string) {
		t.Helper()
		got.Want(status, code)
		method, path, _ := strings.Cut(row, " ")
		if codes := paths[braced(path)][strings.ToLower(method)].Codes; !slices.Contains(codes, code) {
			t.Errorf("%s refuses with %s, and the document names %q", row, code, codes)
		}
	}
}

// TestBoundsOfUsersAreInTheDocument: what a user can have or do only so often is
// refused with a code that the document names for the row.
func TestBoundsOfUsersAreInTheDocument(t *testing.T) {
	k := composed(t)
	ctx, ada, refuses := t.Context(), k.User("ada"), named(t, k)
	full := func(row, path string, body any) {
		t.Helper()
		got := ada.Post(path, body)
		for n := 0; n < 100 && got.Status < 400; n++ {
			got = ada.Post(path, body)
		}
		refuses(got, row, 429, "kit/rate_limited")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	k.User("bob")
	full("POST /matchmaking/friends/:userId/request", "/matchmaking/friends/bob/request", nil)
	full("POST /matchmaking/games/:game/invites", "/matchmaking/games/duel/invites", map[string]any{"userId": "bob"})
	full("POST /multiplayer/games/:game", "/multiplayer/games/duel", nil)

	object, err := k.Storage().Put(ctx, storage.Upload{OwnerID: "ada", Path: "shared", Size: 1}, strings.NewReader("a"))
	must(err)
	full("POST /storage/:id/shares", "/storage/"+object.ID+"/shares", nil)
	for i := range storage.MaxPending {
		_, err := k.Storage().Start(ctx, storage.Upload{OwnerID: "ada", Path: strconv.Itoa(i), Size: 1})
		must(err)
	}
	full("POST /storage", "/storage", map[string]any{"path": "more", "size": 1})
	for range media.MaxPending {
		_, err := k.Media().Create(ctx, media.Upload{OwnerID: "ada", Filename: "a.png", ContentType: "image/png", Size: 1})
		must(err)
	}
	full("POST /media", "/media", map[string]any{"filename": "a.png", "contentType": "image/png", "size": 1})

	duel, err := k.Multiplayer().Game("duel")
	must(err)
	invite, err := k.Matchmaking().SendInvite(ctx, "duel", "bob", matchmaking.Invitee{UserID: "ada"})
	must(err)
	room, err := k.Matchmaking().OpenRoom(ctx, "duel", "bob")
	must(err)
	for i := range multiplayer.MaxSeated {
		_, err := k.Multiplayer().Start(ctx, multiplayer.Start{Game: duel, Players: []string{"ada", "guest" + strconv.Itoa(i)}})
		must(err)
	}
	full("POST /multiplayer/sessions/:id/join", "/multiplayer/sessions/"+room.SessionID+"/join", nil)
	full("POST /matchmaking/games/:game/rooms", "/matchmaking/games/duel/rooms", nil)
	full("POST /matchmaking/rooms/:code/join", "/matchmaking/rooms/"+room.Code+"/join", nil)
	full("POST /matchmaking/invites/:id/accept", "/matchmaking/invites/"+invite.ID+"/accept", nil)
	full("POST /matchmaking/games/:game/queue", "/matchmaking/games/duel/queue", map[string]any{})
}

// TestRefusalsOfStaffAreInTheDocument: what a repeated call of staff is refused with
// has a code that the document names for the row.
func TestRefusalsOfStaffAreInTheDocument(t *testing.T) {
	k := composed(t)
	refuses := named(t, k)
	ticket, _, err := k.Support().Submit(t.Context(), support.Feedback{UserID: "ada", Message: "It works."})
	if err != nil {
		t.Fatal(err)
	}
	reply := func(text string) *kittest.Response {
		return k.Machine("support:threads:reply").Post("/support/threads/"+ticket.ID+"/reply", map[string]any{"message": text, "idempotencyKey": "once"})
	}
	reply("Thank you.").Want(201, "")
	refuses(reply("Another one."), "POST /support/threads/:id/reply", 409, "kit/idempotency_conflict")

	if err := k.Testers().SetCohort(t.Context(), testers.CohortConfig{ID: "beta", Name: "Beta", StoreURL: "https://play.example/beta"}); err != nil {
		t.Fatal(err)
	}
	staff, member := k.Machine("testers:roster:write"), map[string]any{"cohortId": "beta", "email": "bob@example.org"}
	invite := map[string]any{"cohortId": "beta", "testers": []any{map[string]any{"email": "bob@example.org"}}}
	staff.Post("/testers/invite", invite).Want(201, "")
	last := staff.Post("/testers/resend", member)
	for n := 0; n < 50 && last.Status < 400; n++ {
		last = staff.Post("/testers/resend", member)
	}
	refuses(last, "POST /testers/resend", 429, "email/rate_limited")
	staff.Post("/testers/remove", member).Want(200, "")
	refuses(staff.Post("/testers/invite", invite), "POST /testers/invite", 429, "email/rate_limited")

	film, err := k.Media().Create(t.Context(), media.Upload{OwnerID: "ada", Filename: "a.mp4", ContentType: "video/mp4", Size: 101 << 20})
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]any{"parts": []any{map[string]any{"partNumber": 1, "etag": "a"}}}
	refuses(k.User("ada").Post("/media/"+film.Item.ID+"/finalize", parts), "POST /media/:id/finalize", 500, "storage/multipart_failed")
}

// gate says where a game refuses its players, or takes money that they do not have.
type gate struct {
	At     string `json:"at"`
	Takes  bool   `json:"takes"`
	TooNew bool   `json:"tooNew"`
}

// gates is a game for so many players at least.
func gates(kind string, players int) multiplayer.Model {
	type game = multiplayer.Context[gate]
	at := func(c game, step, userID string) ([]multiplayer.Effect, error) {
		switch {
		case c.Config.At != step:
			return nil, nil
		case c.Config.Takes:
			return []multiplayer.Effect{multiplayer.Debit(userID, "coins", 5, c.Ref(step))}, nil
		case c.Config.TooNew:
			return nil, multiplayer.ErrInvalidTransition
		}
		return nil, multiplayer.Illegal("Not here.")
	}
	return multiplayer.Define(multiplayer.Definition[gate, struct{}]{
		Kind: kind, MinPlayers: players,
		Init: func(c game) (s struct{}, effects []multiplayer.Effect, err error) {
			effects, err = at(c, "begin", c.Players[len(c.Players)-1])
			return s, effects, err
		},
		OnJoin: func(_ game, s struct{}, _ string) (struct{}, []multiplayer.Effect, error) { return s, nil, nil },
		OnLeave: func(c game, s struct{}, userID string) (struct{}, []multiplayer.Effect, error) {
			effects, err := at(c, "leave", userID)
			return s, effects, err
		},
		Apply: func(_ game, s struct{}, _ multiplayer.Move) (struct{}, []multiplayer.Effect, error) {
			return s, nil, nil
		},
		IsComplete: func(game, struct{}) bool { return false },
		Resolve: func(c game, _ struct{}) multiplayer.Outcome {
			effects, _ := at(c, "close", c.Players[0])
			return multiplayer.Outcome{Effects: effects}
		},
		Redact: func(_ game, s struct{}, _ string, _ bool) any { return s },
	})
}

// TestRefusalsOfModelsAreInTheDocument: what a model forbids, and a stake that nobody
// covers, is refused with a code that the document names for the row, wherever a model
// is asked.
func TestRefusalsOfModelsAreInTheDocument(t *testing.T) {
	rules := map[string]gate{
		"forbids": {At: "begin"}, "later": {At: "begin", TooNew: true}, "takes": {At: "begin", Takes: true},
		"keeps": {At: "leave"}, "fines": {At: "leave", Takes: true}, "bills": {At: "close", Takes: true},
	}
	cfg := multiplayer.Config{Models: []multiplayer.Model{gates("alone", 1), gates("pair", 2)}}
	var queues matchmaking.Config
	for name, g := range rules {
		for kind, needed := range map[string]int{"alone": 1, "pair": 2} {
			table := multiplayer.Game{Key: kind + "-" + name, Kind: kind, Mode: multiplayer.ModeTable, Players: 2, Rules: g}
			cfg.Games = append(cfg.Games, table)
			queues.Games = append(queues.Games, matchmaking.Game{Key: table.Key, Players: max(needed, 2), Snapshot: &table})
		}
	}
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithLedger(coins()), kit.WithMultiplayer(cfg), kit.WithMatchmaking(queues))
	ada, bob, refuses := k.User("ada"), k.User("bob"), named(t, k)
	for name, want := range map[string]struct {
		status int
		code   string
	}{
		"forbids": {422, "multiplayer/invalid_move"}, "later": {409, "multiplayer/invalid_transition"}, "takes": {409, "ledger/insufficient_funds"},
	} {
		refuses(ada.Post("/multiplayer/games/alone-"+name, nil), "POST /multiplayer/games/:game", want.status, want.code)
		refuses(ada.Post("/matchmaking/games/alone-"+name+"/rooms", nil), "POST /matchmaking/games/:game/rooms", want.status, want.code)

		var session multiplayer.View
		ada.Post("/multiplayer/games/pair-"+name, nil).Want(201, "").JSON(&session)
		refuses(bob.Post("/multiplayer/sessions/"+session.ID+"/join", nil), "POST /multiplayer/sessions/:id/join", want.status, want.code)

		var invite matchmaking.Invite
		ada.Post("/matchmaking/games/pair-"+name+"/invites", map[string]any{"userId": "bob"}).Want(201, "").JSON(&invite)
		refuses(bob.Post("/matchmaking/invites/"+invite.ID+"/accept", nil), "POST /matchmaking/invites/:id/accept", want.status, want.code)

		var room matchmaking.Room
		ada.Post("/matchmaking/games/pair-"+name+"/rooms", nil).Want(201, "").JSON(&room)
		if name == "later" { // is a room that is over
			want.status, want.code = 404, "matchmaking/room_not_found"
		}
		refuses(bob.Post("/matchmaking/rooms/"+room.Code+"/join", nil), "POST /matchmaking/rooms/:code/join", want.status, want.code)
	}
	for _, c := range []struct {
		game, verb string
		status     int
		code       string
	}{
		{"alone-keeps", "leave", 422, "multiplayer/invalid_move"},
		{"alone-fines", "leave", 409, "ledger/insufficient_funds"},
		{"alone-bills", "close", 409, "ledger/insufficient_funds"},
	} {
		var session multiplayer.View
		ada.Post("/multiplayer/games/"+c.game, nil).Want(201, "").JSON(&session)
		bob.Post("/multiplayer/sessions/"+session.ID+"/join", nil).Want(200, "")
		refuses(ada.Post("/multiplayer/sessions/"+session.ID+"/"+c.verb, nil), "POST /multiplayer/sessions/:id/"+c.verb, c.status, c.code)
	}
}
