package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/internal/browsertest"
)

// serve runs a closed test that needs two testers for five days.
func serve(t *testing.T) (base string, d *desk) {
	t.Helper()
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	d, err := open(t.Context(), server.URL, 2, 5, kit.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	handler = d.handler()
	t.Cleanup(func() {
		server.Close()
		if err := d.kit.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server.URL, d
}

var nextStep = regexp.MustCompile(`http://\S+/testers/(?:confirm|opt-in)/\S+`)

// TestClosedTest plays a whole test over HTTP.
func TestClosedTest(t *testing.T) {
	base, d := serve(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	read := func(resp *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %s %v", resp.StatusCode, body, err)
		}
		return string(body)
	}
	post := func(path string, fields ...string) string {
		t.Helper()
		form := url.Values{}
		for i := 0; i < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		return read(client.PostForm(base+path, form))
	}
	see := func(page, want string) {
		t.Helper()
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q: %s", want, page)
		}
	}

	var said bytes.Buffer
	if err := invite(t.Context(), &said, base, []string{"ada@example.com", "nonsense", "grace@example.com"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "invited ada@example.com\n") || !strings.Contains(said.String(), "refused nonsense: email/invalid_address\n") {
		t.Errorf("the command said %s", said.String())
	}
	if err := invite(t.Context(), io.Discard, base, nil); err == nil {
		t.Error("nobody was invited, want an error")
	}
	see(post("/invite", "addresses", "ada@example.com"), "on the roster already")
	join := func(address string) {
		t.Helper()
		if _, err := d.kit.Jobs().RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		mail, ok, err := d.kit.Email().LastMail(t.Context(), address)
		if err != nil || !ok {
			t.Fatalf("no mail to %s: %v", address, err)
		}
		page := read(client.Get(nextStep.FindString(mail.Text) + "?go=1"))
		action := regexp.MustCompile(`action="([^"]+)"`).FindStringSubmatch(page)
		see(read(client.Get(action[1]+"?go=1")), `id="store"`)
	}
	join("ada@example.com")
	join("grace@example.com")
	see(read(client.Get(base+"/")), `<dd id="optedin">2 of 2</dd>`)
	see(post("/day"), "day 1 of 5")
	page := post("/day")
	see(page, "day 2 of 5")
	see(page, `id="curve"`)
	see(page, "no promise")
	post("/enter", "email", "ada@example.com")
	see(post("/feedback", "message", "The app crashes when I rotate the phone."), "You are opted in")
	page = read(client.Get(base + "/inbox"))
	see(page, "bug report")
	see(page, "waits for a reply")
	thread := regexp.MustCompile(`data-thread="([^"]+)"`).FindStringSubmatch(page)[1]
	post("/reply", "thread", thread, "message", "Thank you, this is fixed in 1.1.")
	see(read(client.Get(base+"/app")), "fixed in 1.1")
	see(post("/nudge", "kind", "confirm"), "nobody to remind")
	for range 2 {
		post("/day")
	}
	see(post("/nudge", "kind", "inactive"), `<td data-label="reminded">inactive</td>`)
	see(post("/reply", "thread", "x", "message", "y"), "There is no such thread.")
}

// TestInABrowser invites from the command line and does the rest in a real browser, wide and as on
// a phone.
func TestInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	base, _ := serve(t)
	if err := invite(t.Context(), io.Discard, base, []string{"ada@example.com", "grace@example.com", "alan@example.com"}); err != nil {
		t.Fatal(err)
	}
	staff := b.Open(base + "/")
	look := func(name string) {
		t.Helper()
		for _, width := range []int{1280, 390} {
			staff.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 1500, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
			var over int
			staff.Run("return document.documentElement.scrollWidth - innerWidth", &over)
			if over > 0 {
				t.Errorf("%s is %d wider than a window of %d", name, over, width)
			}
			staff.Picture(name + map[bool]string{true: "-phone", false: "-wide"}[width < 500])
		}
	}
	go1 := func(selector, want string) {
		t.Helper()
		staff.Click(selector)
		staff.Until(want)
	}
	day := func() {
		t.Helper()
		staff.See("#day button")
		today := staff.Text("time")
		staff.Click("#day button")
		staff.Until(`$("#roster") && $("time").textContent !== "` + today + `"`)
	}
	// mailLink opens the latest mail to an address, and follows a link in it.
	mailLink := func(address, kind string) {
		t.Helper()
		staff.Visit(base + "/__kit/mailbox")
		var at string
		staff.Run(`const row = await until(() => [...document.querySelectorAll("tr")].find(row => row.textContent.includes("`+address+`")))
			return row.querySelector("a").href`, &at)
		staff.Visit(at)
		staff.Run(`return (await until(() => $("li a[href*='/testers/`+kind+`/']"))).href`, &at)
		staff.Visit(at)
	}
	for _, address := range []string{"ada@example.com", "grace@example.com"} {
		staff.Visit(base + "/")
		day()
		mailLink(address, "confirm")
		staff.Until(`document.body.innerText.includes("You were invited")`)
		if address == "ada@example.com" {
			look("confirm")
		}
		go1("button", `document.body.innerText.includes("Thank you")`)
		go1("button", `$("#store")`)
	}
	staff.Visit(base + "/")
	for i := range 3 {
		day()
		staff.Until(`$("#forecast").textContent.includes("day ` + string(rune('1'+i)) + ` of 5")`)
	}
	staff.Click("[data-email='ada@example.com'] [value=use]")
	staff.Until(`$("[data-email='ada@example.com']").textContent.includes("active, health")`)
	staff.See("#disclaimer")
	if text := staff.Text("#disclaimer"); !strings.Contains(text, "no promise") || !strings.Contains(text, "not fitted") {
		t.Errorf("the disclaimer says %q", text)
	}
	staff.Until(`$("#curve").points.length === 46 && document.querySelectorAll("rect.seen").length >= 4`)
	go1("#nudge [value=confirm]", `$("[data-email='alan@example.com']").textContent.includes("confirm")`)

	app := b.Open(base + "/app")
	app.Fill("#enter input", "grace@example.com")
	app.Click("#enter button")
	app.Fill("#feedback textarea", "I love it, but please add a dark mode.")
	app.Click("#feedback button")
	app.Until(`$(".ticket").textContent.includes("dark mode")`)
	staff.Visit(base + "/inbox")
	staff.Fill(".thread textarea", "It is on the list.")
	look("inbox")
	go1(".thread button", `$(".outbound").textContent === "It is on the list."`)
	app.Visit(base + "/app")
	app.Until(`$(".outbound").textContent === "It is on the list."`)

	// Alan leaves by the link in the reminder.
	mailLink("alan@example.com", "opt-out")
	go1("button", `document.body.innerText.includes("You have left")`)
	staff.Visit(base + "/")
	staff.Until(`$("[data-email='alan@example.com']").dataset.state === "withdrawn"`)
	look("roster")
	for _, tab := range []*browsertest.Tab{staff, app} {
		if complaints := tab.Complaints(); len(complaints) > 0 {
			t.Errorf("the browser complains: %v", complaints)
		}
	}
}
