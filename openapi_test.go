package kit_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/openapi"
)

// documented is the part of an operation that these tests read.
type documented struct {
	OperationID string              `json:"operationId"`
	Summary     string              `json:"summary"`
	Tags        []string            `json:"tags"`
	Responses   map[string]struct{} `json:"responses"`
	Guard       string              `json:"x-kit-guard"`
	Scope       string              `json:"x-kit-scope"`
	Codes       []string            `json:"x-kit-codes"`
}

func composed(t testing.TB) *kittest.Kit {
	return kittest.New(t, append(everything(), kit.WithEnvironment("development"), kit.WithVersion("test"))...)
}

func document(t *testing.T, k *kittest.Kit) ([]byte, map[string]map[string]documented) {
	t.Helper()
	raw, err := k.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]documented `json:"paths"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return raw, doc.Paths
}

// golden compares with a file, or rewrites it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the code says; if the change is meant, run go test -run %s -update .\n%s", path, t.Name(), diff)
	}
}

func TestGoldenOpenAPI(t *testing.T) {
	raw, _ := document(t, composed(t))
	var indented bytes.Buffer
	if err := json.Indent(&indented, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/openapi.golden.json", indented.String())
}

func TestOpenAPIIsDeterministic(t *testing.T) {
	k := composed(t)
	first, _ := document(t, k)
	again, _ := document(t, k)
	other, _ := document(t, composed(t))
	if !bytes.Equal(first, again) || !bytes.Equal(first, other) {
		t.Error("the document of one table differs from call to call")
	}
}

// TestOpenAPINeedsNoDatabase computes the document after the kit has closed.
func TestOpenAPINeedsNoDatabase(t *testing.T) {
	k := composed(t)
	if err := k.Database().Close(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if raw, _ := document(t, k); len(raw) == 0 {
		t.Error("the document is empty")
	}
	t.Logf("computed and read in %s", time.Since(start))
}

// TestOpenAPIHasEveryRoute looks for each row of the table, and for those of
// the sign-in library in place of the row that hands them on.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	k := composed(t)
	_, paths := document(t, k)
	has := func(method, pattern string) {
		t.Helper()
		list := []string{method}
		if method == capability.Any {
			list = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}
		}
		for _, m := range list {
			if _, ok := paths[braced(pattern)][strings.ToLower(m)]; !ok {
				t.Errorf("the document lacks %s %s", m, pattern)
			}
		}
	}
	for _, r := range k.Routes() {
		if r.Path != "/auth/*" {
			has(r.Method, r.Path)
		}
	}
	library := k.Auth().LibraryRoutes()
	if len(library) == 0 {
		t.Fatal("the sign-in library has no routes")
	}
	for _, r := range library {
		has(r.Method, "/auth"+r.Path)
	}
}

func braced(pattern string) string {
	parts := strings.Split(pattern, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			parts[i] = "{" + name + "}"
		} else if part == "*" {
			parts[i] = "{rest}"
		}
	}
	return strings.Join(parts, "/")
}

func TestOpenAPIReferencesResolve(t *testing.T) {
	raw, paths := document(t, composed(t))
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	count := 0
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				walk(v)
			}
		case map[string]any:
			if target, ok := value["$ref"].(string); ok {
				count++
				if !resolves(doc, target) {
					t.Errorf("%s does not resolve", target)
				}
			}
			for _, v := range value {
				walk(v)
			}
		}
	}
	if walk(doc); count == 0 {
		t.Error("the document has no reference")
	}
	ids := make(map[string]bool)
	for _, operations := range paths {
		for _, op := range operations {
			if ids[op.OperationID] {
				t.Errorf("two operations are called %s", op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
}

func resolves(doc any, target string) bool {
	for name := range strings.SplitSeq(strings.TrimPrefix(target, "#/"), "/") {
		object, _ := doc.(map[string]any)
		if doc = object[name]; doc == nil {
			return false
		}
	}
	return true
}

// TestOpenAPIKnowsTheCodesOfRows holds rows to codes that follow from them, and
// each code to the table of all.
func TestOpenAPIKnowsTheCodesOfRows(t *testing.T) {
	k := composed(t)
	_, paths := document(t, k)
	declared := make(map[string]bool)
	for _, e := range slices.Concat(refusals(k), signInRefusals(k)) {
		declared[e.Code] = true
	}
	for path, operations := range paths {
		for method, op := range operations {
			for _, code := range op.Codes {
				if !declared[code] {
					t.Errorf("%s %s: %s is in no capability's table of refusals", method, path, code)
				}
			}
			want := map[string]string{"user": "auth/unauthenticated", "control-plane": "controlplane/invalid_credential",
				"signed-webhook": "kit/invalid_signature", "public": "kit/internal"}[op.Guard]
			if op.Guard == "public" && slices.Contains(op.Codes, "TOO_MANY_REQUESTS") {
				want = "INTERNAL_SERVER_ERROR"
			}
			if !slices.Contains(op.Codes, want) {
				t.Errorf("%s %s: a row with the guard %s lacks %s", method, path, op.Guard, want)
			}
		}
	}
}

func TestOpenAPIHandler(t *testing.T) {
	raw, _ := document(t, composed(t))
	h := openapi.Handler(raw)
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/openapi.json", nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", method, w.Code, want)
		}
		if method == "GET" && !bytes.Equal(w.Body.Bytes(), raw) {
			t.Error("GET did not return the document")
		}
	}
}

// refusals are those of the kit and of all its capabilities, by code.
func refusals(k *kittest.Kit) []*capability.Error {
	list := capability.GeneralRefusals()
	for _, c := range k.Capabilities() {
		list = append(list, c.Refusals...)
	}
	slices.SortFunc(list, func(a, b *capability.Error) int { return strings.Compare(a.Code, b.Code) })
	return slices.CompactFunc(list, func(a, b *capability.Error) bool { return a.Code == b.Code })
}

// signInRefusals are those of the sign-in library, by code and status.
func signInRefusals(k *kittest.Kit) (list []*capability.Error) {
	for _, r := range k.Auth().LibraryRoutes() {
		list = append(list, openapi.Refusals(openapi.Row{Limited: true, Library: &openapi.Library{Word: auth.LibraryRefusal},
			Route: capability.Route{Method: r.Method, Guard: capability.Public("the library decides"), Refusals: r.Refusals}})...)
	}
	slices.SortFunc(list, func(a, b *capability.Error) int {
		return cmp.Or(strings.Compare(a.Code, b.Code), cmp.Compare(a.Status, b.Status))
	})
	return slices.CompactFunc(list, func(a, b *capability.Error) bool { return a.Code == b.Code && a.Status == b.Status })
}

// TestExamplesAreWhatTheirSchemasAllow looks at the example of each body of JSON.
func TestExamplesAreWhatTheirSchemasAllow(t *testing.T) {
	checks := readDocument(t, composed(t))
	seen := 0
	hold := func(what string, c content) {
		body := c.Content["application/json"]
		if body.Schema == nil || body.Schema.Type == "" && body.Schema.Ref == "" {
			return // any JSON
		}
		example := body.Examples["made"].Value
		if seen++; len(example) == 0 {
			t.Errorf("%s: has no example", what)
			return
		}
		var value any
		if err := json.Unmarshal(example, &value); err != nil {
			t.Fatal(err)
		}
		if err := checks.resolve(t, body.Schema).Validate(value); err != nil {
			t.Errorf("%s: %s is not what the schema allows: %v", what, example, err)
		}
	}
	for path, operations := range checks.paths {
		for method, op := range operations {
			hold(method+" "+path, op.RequestBody)
			for status, body := range op.Responses {
				if status < "300" {
					hold(method+" "+path+" "+status, body)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d bodies have a schema, want most of the table", seen)
	}
}

const generated = "<!-- Generated from the route table: go test -run TestDocs -update . -->\n\n"

func TestDocsErrors(t *testing.T) {
	var page strings.Builder
	page.WriteString(generated + "# Refusals\n\n" +
		"Every refusal is `{\"error\": {\"code\", \"message\", \"requestId\", \"details\"}}`, with `details` where they help to\n" +
		"correct the call. Decide by `code`: it is stable, and the message is for people. A 429 or 503 carries\n" +
		"`Retry-After`, in seconds: wait and send the same again. A 500 is logged under its `requestId`.\n" +
		"In Go, compare with `errors.Is` against the exported value of the package.\n")
	todo := advice(t)
	const columns = "\n| Code | Status | Meaning | What to do |\n|---|---|---|---|\n"
	row := func(e *capability.Error) {
		fmt.Fprintf(&page, "| `%s` | %d | %s | %s |\n", e.Code, e.Status, strings.ReplaceAll(e.Message, "|", `\|`), cmp.Or(todo[e.Code], generally(e.Status)))
	}
	domain := ""
	k := composed(t)
	for _, e := range refusals(k) {
		if d, _, _ := strings.Cut(e.Code, "/"); d != domain {
			domain = d
			page.WriteString("\n## " + domain + "\n" + columns)
		}
		row(e)
	}
	page.WriteString("\n## Sign-in\n\n" +
		"The routes of the sign-in library refuse as better-auth does, in place of `kit/` codes too:\n" +
		"`{\"code\", \"message\", \"error\": {\"code\", \"message\", \"requestId\", \"details\"}}`, with the same code twice.\n" +
		"A `VALIDATION_ERROR` about a member of the body has its name in `details.field`. A 429 carries\n" +
		"`X-Retry-After` too. Where a browser opens a link, the refusal is a page, or a redirect with `?error=` and the code.\n" + columns)
	for _, e := range signInRefusals(k) {
		row(e)
	}
	golden(t, "docs/errors.md", page.String())
}

// advice is what to do about a code, from testdata/advice.tsv, whose codes all
// exist.
func advice(t *testing.T) map[string]string {
	t.Helper()
	known := make(map[string]bool)
	k := composed(t)
	for _, e := range slices.Concat(refusals(k), signInRefusals(k)) {
		known[e.Code] = true
	}
	todo := make(map[string]string)
	for line := range strings.Lines(read(t, "testdata/advice.tsv")) {
		code, text, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || !known[code] || todo[code] != "" {
			t.Errorf("testdata/advice.tsv: %q names no code, or one twice", line)
		}
		todo[code] = text
	}
	return todo
}

// generally is what to do about a code that has no advice of its own.
func generally(status int) string {
	switch status {
	case 404, 410:
		return "Read what there is, and use an id of it."
	case 403:
		return "Nothing from this caller: another one may."
	case 409:
		return "Read the present state and decide anew."
	case 429, 503:
		return "Wait as long as `Retry-After` says and send the same again."
	case 500, 502, 504:
		return "Try again later; the log has the cause under the request id."
	default:
		return "Correct what the message names, and do not repeat it as it is."
	}
}

func TestDocsRoutes(t *testing.T) {
	_, paths := document(t, composed(t))
	var page strings.Builder
	page.WriteString(generated + "# Routes\n\n" +
		"The table of a kit with every capability at its default prefix, in the development environment. The\n" +
		"OpenAPI document, `go run ./examples/quickstart -openapi`, has the bodies. Every route can refuse with\n" +
		"`kit/invalid_request`, `kit/internal` and `kit/unavailable` besides the codes that are listed.\n\n" +
		"The routes of the sign-in library have the codes of better-auth, in capital letters and without a slash, and another\n" +
		"[body](errors.md#sign-in). Every one of them can refuse with `VALIDATION_ERROR`, `INTERNAL_SERVER_ERROR` and\n" +
		"`SERVICE_UNAVAILABLE`; a `POST` also with `PAYLOAD_TOO_LARGE`, `MISSING_OR_NULL_ORIGIN`, `INVALID_ORIGIN` and\n" +
		"`CROSS_SITE_NAVIGATION_LOGIN_BLOCKED`, and with `BAD_REQUEST` and `UNSUPPORTED_MEDIA_TYPE` if it reads its body.\n" +
		"`TOO_MANY_REQUESTS` is the limit of an address: 3 requests in 10 seconds of all routes together that guess or make\n" +
		"users, such as `/sign-in/email` and `/sign-up/email`; 3 a minute of those that send mail; 5 a minute of those of links.\n" +
		"`auth.Config.RateLimits` changes them. Accounts have limits of their own, and an\n" +
		"address makes 20 users an hour, guests included (`sign-up`), its network 100 (`sign-up-network`): a school may need more.\n")
	byTag := make(map[string][]string)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range slices.Sorted(maps.Keys(paths[path])) {
			op := paths[path][method]
			guard := op.Guard
			if op.Scope != "" {
				guard += " `" + op.Scope + "`"
			}
			byTag[op.Tags[0]] = append(byTag[op.Tags[0]], fmt.Sprintf("| `%s %s` | %s | %s | %s |\n",
				strings.ToUpper(method), path, guard, strings.ReplaceAll(op.Summary, "|", `\|`), particular(op.Codes)))
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(byTag)) {
		fmt.Fprintf(&page, "\n## %s\n\n| Route | Guard | Summary | Refusals |\n|---|---|---|---|\n%s", tag, strings.Join(byTag[tag], ""))
	}
	golden(t, "docs/routes.md", page.String())
}

// particular leaves out the codes that every route has.
func particular(codes []string) string {
	var list []string
	for _, code := range codes {
		switch code {
		case "kit/invalid_request", "kit/internal", "kit/unavailable", "VALIDATION_ERROR", "INTERNAL_SERVER_ERROR", "SERVICE_UNAVAILABLE",
			"PAYLOAD_TOO_LARGE", "MISSING_OR_NULL_ORIGIN", "INVALID_ORIGIN", "CROSS_SITE_NAVIGATION_LOGIN_BLOCKED", "BAD_REQUEST", "UNSUPPORTED_MEDIA_TYPE":
		default:
			list = append(list, "`"+code+"`")
		}
	}
	return strings.Join(list, " ")
}

// TestLLMs holds the index for language models to the files it names.
func TestLLMs(t *testing.T) {
	raw, err := os.ReadFile("llms.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		_, rest, ok := strings.Cut(line, "](")
		path, _, closed := strings.Cut(rest, ")")
		if !ok || !closed || strings.Contains(path, "://") {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("llms.txt names %s: %v", path, err)
		}
	}
}

var readsParam = regexp.MustCompile(`(?:c\.Query|instant|c\.Request\(\)\.Header\.Get)\((?:c, )?"([A-Za-z-]+)"\)`)

// TestParametersAreDeclared holds what the handlers of a capability read from the
// query and from headers against what its rows declare.
func TestParametersAreDeclared(t *testing.T) {
	for _, c := range composed(t).Capabilities() {
		declared := map[string]bool{"Content-Type": true, "Accept-Language": true} // of HTTP itself
		for _, r := range c.Routes {
			for _, p := range slices.Concat(r.Query, r.Headers) {
				declared[p.Name] = true
			}
		}
		folder := strings.ReplaceAll(c.Name, "-", "")
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", folder, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(raw), "c.IdempotencyKey()") && !declared["Idempotency-Key"] {
				t.Errorf("%s reads Idempotency-Key, which no row of %s declares in Headers", file, c.Name)
			}
			for _, name := range readsParam.FindAllStringSubmatch(string(raw), -1) {
				if !declared[name[1]] && !strings.HasSuffix(file, "_test.go") {
					t.Errorf("%s reads %s, which no row of %s declares in Query or Headers", file, name[1], c.Name)
				}
			}
		}
	}
}

// unreached are the declared refusals that no test provokes over HTTP, with the
// reason; "METHOD path code", or a code alone that no row refuses with.
var unreached = map[string]string{
	"GET /_kit/email/c/:token email/invalid_token":                    asPage,
	"GET /_kit/email/u/:token email/invalid_token":                    asPage,
	"POST /_kit/email/u/:token email/invalid_token":                   asPage,
	"GET /testers/confirm/:token testers/cohort_closed":               asPage,
	"GET /testers/confirm/:token testers/invalid_token":               asPage,
	"GET /testers/opt-in/:token testers/cohort_closed":                asPage,
	"GET /testers/opt-in/:token testers/invalid_token":                asPage,
	"GET /testers/opt-out/:token testers/invalid_token":               asPage,
	"POST /testers/opt-out/:token testers/invalid_token":              asPage,
	"GET /storage/:id/parts storage/upload_incomplete":                "only between the two steps in which another request opens a multipart upload at the bucket",
	"POST /matchmaking/invites/:id/accept matchmaking/room_full":      seatsRace,
	"POST /matchmaking/invites/:id/accept matchmaking/room_not_found": seatsRace,
	"POST /multiplayer/sessions/:id/action kit/rate_limited":          crowded,
	"POST /multiplayer/sessions/:id/close kit/rate_limited":           crowded,
	"POST /multiplayer/sessions/:id/leave kit/rate_limited":           crowded,
}

const (
	asPage    = "is shown as a page, which the tests of the package look at; only refusals in JSON are recorded"
	crowded   = "takes more callers of one session at once than it keeps up with, as the tests of the package have them in process"
	seatsRace = "the session's seats were looked at before, in the same transaction: only another node can take the last one, or end the session, in between"
)

// TestProvokedRefusalsAreDocumented holds what the document says of each row to
// what the rows of the whole suite have refused with, which package
// internal/provoked records where KIT_TEST_REFUSALS names a folder: the two are
// equal but for the table above, whose entries were not provoked.
func TestProvokedRefusalsAreDocumented(t *testing.T) {
	folder := os.Getenv("KIT_TEST_PROVOKED")
	if folder == "" {
		t.Skip("KIT_TEST_PROVOKED names no folder with the records of a run")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no records in %s: %v", folder, err)
	}
	provoked := make(map[string]bool) // method, path and code
	anywhere := make(map[string]bool) // code
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) == 4 {
				provoked[f[0]+" "+f[1]+" "+f[3]], anywhere[f[3]] = true, true
			}
		}
	}
	k := composed(t)
	_, paths := document(t, k)
	rows, both, missing := 0, 0, []string{}
	for _, c := range k.Capabilities() {
		for _, r := range c.Routes {
			op, ok := paths[braced(r.Path)][strings.ToLower(r.Method)]
			if !ok || strings.HasSuffix(r.Path, "*") {
				continue
			}
			rows++
			prefix := r.Method + " " + r.Path + " "
			for line := range provoked {
				if code, ok := strings.CutPrefix(line, prefix); ok && !slices.Contains(op.Codes, code) {
					t.Errorf("%s%s was provoked and is not in the document: declare it in Refusals of the row", prefix, code)
				}
			}
			for _, e := range r.Refusals {
				if provoked[prefix+e.Code] {
					both++
				} else {
					missing = append(missing, prefix+e.Code)
				}
			}
		}
	}
	for _, e := range capability.GeneralRefusals() {
		if !anywhere[e.Code] {
			missing = append(missing, e.Code)
		}
	}
	for _, line := range missing {
		if unreached[line] == "" {
			t.Errorf("%s is in the document and no test provoked it: write the test, or why there is none", line)
		}
	}
	for line := range unreached {
		if !slices.Contains(missing, line) {
			t.Errorf("%s was provoked after all, or is not in the document: take it out of the table", line)
		}
	}
	t.Logf("%d rows; %d declared refusals were provoked over HTTP, %d were not", rows, both, len(missing))
}
