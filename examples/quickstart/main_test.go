package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kitbackend/kit/kittest"
)

// start runs the program on a free port and returns the lines of its banner by name.
func start(t *testing.T, args ...string) map[string]string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-addr", "localhost:0"}, args...), io.Discard, in)
		_ = in.CloseWithError(io.EOF)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	banner := make(map[string]string)
	for lines.Scan() {
		if name, text, ok := strings.Cut(strings.TrimSpace(lines.Text()), "  "); ok {
			banner[name] = strings.TrimSpace(text)
		} else if name, text, ok := strings.Cut(strings.TrimSpace(lines.Text()), " "); ok && name != "time="+text {
			banner[name] = strings.TrimSpace(text)
		}
		if banner["Manage"] != "" {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return banner
}

func TestStory(t *testing.T) {
	for name, args := range map[string][]string{"memory": nil, "file": {"-db", filepath.Join(t.TempDir(), "app.db")}} {
		t.Run(name, func(t *testing.T) {
			base := start(t, args...)["API"]
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			client := &http.Client{Jar: jar}
			get := func(path string, into any) {
				t.Helper()
				resp, err := client.Get(base + path)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Fatalf("%s: %s", path, resp.Status)
				}
				if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
					t.Fatal(err)
				}
			}
			var health, login, balance map[string]any
			get("/health", &health)
			get("/__kit/dev-login?user=ada", &login)
			get("/ledger/coins", &balance)
			if health["status"] != "ok" || login["userId"] != "ada" || balance["currency"] != "coins" {
				t.Errorf("%v %v %v", health, login, balance)
			}
		})
	}
}

// TestPagesAreOnlyRead sends requests that no browser sends for a page.
func TestPagesAreOnlyRead(t *testing.T) {
	k := kittest.New(t)
	for _, c := range []struct {
		method, path string
		status       int
	}{{http.MethodGet, "/", 200}, {http.MethodConnect, "/", 405}, {http.MethodPost, "/", 405}, {http.MethodGet, "/%ff%fe", 404}} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://localhost"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		site(k.Kit).ServeHTTP(rec, r)
		if rec.Code != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, rec.Code, c.status)
		}
	}
}

// TestBannerLines runs the lines of the banner in a shell.
func TestBannerLines(t *testing.T) {
	if os.Getenv("KIT_TEST_CURL") == "" {
		t.Skip("KIT_TEST_CURL is not set")
	}
	banner, dir := start(t), t.TempDir()
	want := map[string]string{"Health": `"ok"`, "Sign in": `"userId":"ada"`, "Give": `"amount":100`, "Balance": `"balance":100`, "History": "welcome:ada", "Note": "Lentil soup", "Buy": `"key":"pro","active":true`, "Upload": "\nhello", "Picture": `"status":"ready"`}
	for _, name := range []string{"Health", "Sign in", "Give", "Balance", "History", "Note", "Buy", "Upload", "Picture"} {
		cmd := exec.Command("sh", "-c", banner[name])
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), want[name]) {
			t.Errorf("%s: %s\n%s%v", name, banner[name], out, err)
		}
	}
}

// TestUploadsOfTheGuide runs the commands of docs/clients.md in a shell: the upload, then what is
// refused, each with the status and the code that its comment names.
func TestUploadsOfTheGuide(t *testing.T) {
	if os.Getenv("KIT_TEST_CURL") == "" {
		t.Skip("KIT_TEST_CURL is not set")
	}
	guide, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(guide), "\n## Uploads\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 {
		t.Fatalf("the guide has %d blocks of commands about uploads, want 2", len(blocks))
	}
	script, separator := blocks[0][1], "\n-- next --\n"
	want := []string{""}
	for line := range strings.Lines(blocks[1][1]) {
		command, comment, refused := strings.Cut(line, " # ")
		if refused {
			refusal, _, _ := strings.Cut(comment, ":")
			want = append(want, refusal)
			command = "printf '" + separator + "'; " + strings.Replace(command, "curl ", "curl -w ' %{http_code}' ", 1)
		}
		script += command + "\n"
	}
	script = strings.ReplaceAll(script, "http://localhost:8080", start(t)["API"])
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(string(out), separator)
	if len(got) != len(want) || !strings.HasSuffix(got[0], "hello") {
		t.Fatalf("the commands print\n%s", out)
	}
	for i, refusal := range want[1:] {
		status, code, _ := strings.Cut(refusal, " ")
		if text := got[i+1]; !strings.HasSuffix(text, " "+status) || !strings.Contains(text, `"code":"`+code+`"`) {
			t.Errorf("refusal %d is %s, want %s", i+1, text, refusal)
		}
	}
}

// TestManage follows the banner to the manifest of the running service.
func TestManage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	for range 2 { // a second run on the same database has a key of its own
		t.Run("", func(t *testing.T) {
			banner := start(t, "-db", file)
			cmd := exec.Command("go", strings.Fields(banner["Manage"])[1:]...)
			cmd.Dir = "../.."
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "ledger") || !strings.Contains(string(out), "control-plane") {
				t.Errorf("%s: %v\n%s", banner["Manage"], err, out)
			}
		})
	}
}

// TestReadmeCommand runs the command of the README unchanged, on a free port.
func TestReadmeCommand(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const command = "go run ./examples/quickstart"
	if !strings.Contains(string(readme), "\n"+command+"\n") {
		t.Fatal("the README has another command")
	}
	cmd := exec.Command("go", strings.Fields(command + " -addr localhost:0 -routes")[1:]...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("../../testdata/routes.golden")
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != string(golden) {
		t.Errorf("-routes prints\n%s", out)
	}
}

func TestOpenAPIFlagPrintsTheDocument(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-openapi"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string                     `json:"openapi"`
		Paths   map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(out.String()), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Paths["/health"] == nil {
		t.Errorf("got a document of version %q with %d paths, without /health or of another version", doc.OpenAPI, len(doc.Paths))
	}
}
