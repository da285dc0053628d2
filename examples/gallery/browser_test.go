package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/internal/browsertest"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
)

// drop passes files to the page as dropping them would: pictures drawn there, and a film of 12 MiB
// with known bytes.
const drop = `
	await until(() => $("#drop"))
	const files = new DataTransfer()
	const pictures = { pictures: [["dawn.png", "#f6a55a", "#7b4b94", 450, 150], ["sea.png", "#2d7dd2", "#97d8b2", 120, 380], ["a long name of a picture of the forest.png", "#ecf39e", "#31572c", 320, 240]],
		copy: [["again.png", "#f6a55a", "#7b4b94", 450, 150]] }[kind]
	if (pictures) for (const [name, from, to, x, y] of pictures) {
		const canvas = Object.assign(document.createElement("canvas"), { width: 640, height: 480 }), c = canvas.getContext("2d")
		if (kind === "copy") { canvas.width = 320; canvas.height = 240; c.scale(0.5, 0.5) }
		const sky = c.createLinearGradient(0, 0, 640, 480); sky.addColorStop(0, from); sky.addColorStop(1, to)
		c.fillStyle = sky; c.fillRect(0, 0, 640, 480); c.fillStyle = "#fffb"; c.beginPath(); c.arc(x, y, 60, 0, 7); c.fill()
		files.items.add(new File([await new Promise((r) => canvas.toBlob(r, "image/png"))], name, { type: "image/png" }))
	} else files.items.add(new File([new Uint8Array(12 << 20).map((_, i) => i % 251)], "film.mp4", { type: "video/mp4" }))
	document.dispatchEvent(Object.assign(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true })))`

// TestPauseAndResume drops and shows pictures; a film in three parts is paused in the middle,
// resumed after a reload, and shared.
func TestPauseAndResume(t *testing.T) {
	b := browsertest.Start(t)
	objects, err := open(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler
	var held atomic.Bool // parts after the first wait while it is set
	var parts atomic.Int64
	released, stored := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { held.Store(false); close(released) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := false
		if r.Method == http.MethodPut {
			sent := parts.Add(1)
			if first = held.Load() && sent == 1; held.Load() && !first {
				<-released
				return
			}
		}
		handler.ServeHTTP(w, r)
		if first {
			close(stored)
		}
	}))
	defer server.Close()
	defer release()
	k, err := kit.New(append(options(server.URL, objects, media.Config{}), kit.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if handler, err = application(k); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	var jobs sync.WaitGroup
	jobs.Go(func() { _ = k.Run(running) })
	defer jobs.Wait()
	defer stop()
	page := b.Open(server.URL + "/")
	page.Fill("#user", "ada")
	page.Click("#login button")
	page.Run(`const kind = "pictures";`+drop, nil)
	page.Until(`document.querySelectorAll(".item img").length === 3 && [...document.querySelectorAll(".item img")].every((i) => i.naturalWidth === 320)`)
	page.Run(`const kind = "copy";`+drop, nil)
	page.Until(`[...document.querySelectorAll(".item")].some((e) => e.textContent.includes("again.png") && e.querySelector(".alike").textContent === "Looks like dawn.png")`)
	page.Until(`document.querySelectorAll(".item img").length === 4`)
	page.Run(`document.querySelectorAll(".item .remove")[1].scrollIntoView()`, nil)
	page.Picture("alike")
	page.Run(`(await until(() => [...document.querySelectorAll(".item")].find((e) => e.textContent.includes("again.png")))).querySelector(".remove").click()`, nil)
	page.Until(`document.querySelectorAll(".item img").length === 3`)

	parts.Store(0)
	held.Store(true)
	page.Run(`const kind = "film";`+drop, nil)
	page.Until(`document.querySelector(".upload.running progress").value >= 0.4`)
	<-stored
	page.Click(".upload .toggle")
	page.Until(`document.querySelector(".upload.paused .toggle").textContent === "Resume"`)
	page.Picture("paused")
	for width, name := range map[int]string{1280: "wide", 390: "narrow"} {
		page.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 860, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
		page.Until(fmt.Sprintf(`innerWidth === %d && document.documentElement.scrollWidth <= innerWidth`, width))
		page.Picture(name)
	}
	if u, err := k.Storage().Usage(t.Context(), "ada"); err != nil || u.Reserved != 12<<20 {
		t.Errorf("%+v %v", u, err)
	}
	release()
	parts.Store(0)
	page.Visit(server.URL + "/?again")
	page.Until(`location.search === "?again" && document.querySelector(".upload.paused b").textContent === "film.mp4"`)
	page.Click(".upload .toggle")
	page.Until(`document.querySelectorAll(".item").length === 4 && !document.querySelector(".upload")`)

	if n := parts.Load(); n != 2 {
		t.Errorf("%d parts were sent after the pause, want the two that were missing", n)
	}
	film, err := k.Storage().At(t.Context(), "ada", "film.mp4")
	if err != nil {
		t.Fatal(err)
	}
	content, err := k.Storage().Open(t.Context(), storage.ByID(film.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	got, err := io.ReadAll(content)
	if err != nil || len(got) != 12<<20 {
		t.Fatal(len(got), err)
	}
	for i, c := range got {
		if int(c) != i%251 {
			t.Fatalf("byte %d is %d", i, c)
		}
	}

	page.Run(`(await until(() => [...document.querySelectorAll(".item")].find((e) => e.textContent.includes("dawn.png")))).querySelector(".share").click()`, nil)
	var link string
	page.Run(`return (await until(() => $("#link") && $("#link").value && $("#link"))).value`, &link)
	page.Picture("shared")
	response, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if picture, err := png.Decode(response.Body); err != nil || picture.Bounds().Dx() != 640 {
		t.Errorf("the link gives %v %v", response.Status, err)
	}
	page.Click("#revoke")
	page.Until(`!document.querySelector("#shared").open`)
	if again, err := http.Get(link); err != nil || again.StatusCode != http.StatusNotFound {
		t.Errorf("a link taken back: %v %v", again, err)
	} else {
		_ = again.Body.Close()
	}
	page.Run(`(await until(() => [...document.querySelectorAll(".item")].find((e) => e.textContent.includes("film.mp4")))).querySelector(".remove").click()`, nil)
	page.Until(`document.querySelectorAll(".item").length === 3`)
	for _, complaint := range page.Complaints() {
		t.Error(complaint)
	}
}

// TestStoredScriptsDoNotRun checks that stored pages, vector images, markup and polyglots run
// nothing in a browser, in either bucket.
func TestStoredScriptsDoNotRun(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		objects, err := open("", "")
		if err != nil {
			t.Fatal(err)
		}
		runsNothing(t, objects)
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		runsNothing(t, buckettest.S3(t))
	})
}

func runsNothing(t *testing.T, objects bucket.Bucket) {
	b := browsertest.Start(t)
	var handler http.Handler
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/ran") {
			requests.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	k, err := kit.New(append(options(server.URL, objects, media.Config{}), kit.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(context.Background()) }()
	if handler, err = application(k); err != nil {
		t.Fatal(err)
	}
	ran := server.URL + "/ran" // an absolute URL, because S3 is another origin
	script := `<script>fetch("` + ran + `")</script><img src="` + ran + `/img" onerror="fetch('` + ran + `/error')">`
	var dot bytes.Buffer
	picture := image.NewRGBA(image.Rect(0, 0, 1, 1))
	picture.Set(0, 0, color.White)
	if err := png.Encode(&dot, picture); err != nil {
		t.Fatal(err)
	}
	page := b.Open(server.URL + "/")
	for _, c := range []struct{ kind, body string }{
		{"text/html", script}, {"application/xhtml+xml", `<html xmlns="http://www.w3.org/1999/xhtml">` + script + `</html>`},
		{"image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg"><script>fetch("` + ran + `/svg")</script></svg>`},
		{"text/xml", `<?xml-stylesheet href="` + ran + `/xsl"?><a/>`}, {"text/plain", script}, {"image/png", script}, {"", script},
		{"image/gif", "GIF89a/*" + strings.Repeat("\x00", 20) + "*/=1;" + script}, {"image/gif", `GIF89a/*` + "\x00" + `*/=1;fetch("` + ran + `/js")`}, {"image/png", dot.String() + script}, {"application/pdf", "%PDF-1.7\n" + script},
	} {
		o, err := k.Storage().Put(t.Context(), storage.Upload{OwnerID: "ada", Path: "a.html", Size: -1, ContentType: c.kind, Visibility: storage.VisibilityPublic}, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		link, err := k.Storage().Sign(t.Context(), storage.ByID(o.ID), storage.SignOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{server.URL + "/storage/" + o.ID, link.URL} {
			page.Visit(address)
			// A frame of the kit's own origin is refused as well.
			page.Visit(server.URL + "/?" + o.ID)
			page.Run(`await until(() => document.body && location.search === "?`+o.ID+`")
				const f = document.createElement("iframe"); f.src = "`+address+`"; document.body.append(f)
				const s = document.createElement("script"); s.src = f.src; document.body.append(s)
				await new Promise((r) => setTimeout(r, 150))`, nil)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d scripts or images of stored bytes ran", n)
	}
}
