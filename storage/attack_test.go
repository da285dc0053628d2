package storage_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

func TestPathsThatAreRefused(t *testing.T) {
	buckets(t, storage.Config{}, func(t *testing.T, r *rig) {
		for _, bad := range []string{"", "..", ".", "../x", "a/../b", "a/./b", "/etc/passwd", "a//b", "a/", "a\x00b", "a\nb", "a\x7fb", "a\u0085b",
			"a\uffffb", "a\U0010FFFFb", strings.Repeat("x", 1025), strings.Repeat("x", 4096)} {
			r.do("ada", "POST", "/storage", upload{"path": bad, "size": 1}).want(400, "kit/invalid_request")
		}
		r.do("ada", "POST", "/storage", `{"path":"a`+"\xff"+`","size":1}`, "Content-Type", "application/json").want(400, "kit/invalid_request")
		for _, data := range []string{`a\b`, "%2e%2e/%2e%2e", "...", "..a", "a b", "C:/x", "~", "-rf", strings.Repeat("x", 1024), "\u202egnp.exe"} {
			o := r.put("ada", data, []byte("x"))
			if o.Path != data {
				t.Errorf("%q is kept as %q", data, o.Path)
			}
			if got := r.do("ada", "GET", "/storage/"+o.ID, nil).want(200, ""); strings.ContainsAny(got.header.Get("Content-Disposition"), "\u202e\r\n") {
				t.Errorf("%q: %q", data, got.header.Get("Content-Disposition"))
			}
		}
		// Two Unicode spellings of one name are one path.
		first, second := r.put("ada", "caf\u00e9", []byte("1")), r.put("ada", "cafe\u0301", []byte("2"))
		if first.Path != second.Path {
			t.Errorf("%q and %q", first.Path, second.Path)
		}
		r.do("ada", "GET", "/storage/"+first.ID, nil).want(404, "storage/not_found")
	})
}

func TestBodiesThatAreRefused(t *testing.T) {
	buckets(t, storage.Config{MaxObjectBytes: 100, AllowedTypes: []string{"image/*", "text/plain"}}, bodiesAreRefused)
	buckets(t, small, func(_ *testing.T, r *rig) {
		r.do("ada", "POST", "/storage", upload{"path": "a", "size": int64(5*mib*10_000 + 1)}).want(500, "storage/multipart_failed")
		r.do("ada", "POST", "/storage", upload{"path": "a", "size": int64(9007199254740992)}).want(413, "kit/body_too_large")
	})
}

func bodiesAreRefused(t *testing.T, r *rig) {
	long := strings.Repeat("x", 10<<10)
	for _, c := range []struct {
		u      upload
		status int
		code   string
	}{
		{upload{"path": "a"}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": -1}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 101, "contentType": "image/png"}, 413, "kit/body_too_large"},
		{upload{"path": "a", "size": 1, "contentType": long}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "contentType": "image"}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "contentType": "image/png,text/html"}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "contentType": "text/html;a"}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "contentType": "image/png\r\nX: y"}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1}, 415, "kit/unsupported_media_type"},
		{upload{"path": "a", "size": 1, "contentType": "TEXT/HTML"}, 415, "kit/unsupported_media_type"},
		{upload{"path": "a", "size": 1, "contentType": "text/plain", "visibility": "all"}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "contentType": "text/plain", "sha256": "abc"}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "contentType": "text/plain", "metadata": map[string]string{"": "x"}}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "contentType": "text/plain", "metadata": map[string]string{"a": long}}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "owner": "bob"}, 400, "kit/invalid_request"},
		{upload{"path": "a", "size": 1, "metadata": map[string]string{"a": long + long}}, 413, "kit/body_too_large"},
		{upload{"path": "a", "size": 100, "contentType": " Image/SVG+xml"}, 201, ""},
	} {
		if got := r.do("ada", "POST", "/storage", c.u); got.status != c.status || got.code() != c.code {
			t.Errorf("%.200v: %d %s, want %d %s", c.u, got.status, got.body, c.status, c.code)
		}
	}
	got := r.do("ada", "POST", "/storage", upload{"path": "a", "size": 101, "contentType": "image/png"})
	if !strings.Contains(string(got.body), `"details":{"maxBytes":100}`) {
		t.Errorf("the refusal of a large object lacks the limit: %s", got.body)
	}
}

// TestForeignObjects checks what every route reveals about objects of others.
func TestForeignObjects(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		private := r.put("ada", "private", []byte("private"))
		public := r.put("ada", "public", []byte("public"), "visibility", "public")
		pending := r.start("ada", upload{"path": "pending", "size": 3, "visibility": "public"}).Object
		shares := func(o object) string {
			var share struct{ Share struct{ Token string } }
			r.do("ada", "POST", "/storage/"+o.ID+"/shares", nil).want(201, "").json(&share)
			return share.Share.Token
		}
		tokens := map[string]string{private.ID: shares(private), public.ID: shares(public), pending.ID: "none", "absent": "none"}
		calls := []struct {
			method, path string
			body         any
		}{
			{"POST", "/complete", upload{}}, {"POST", "/abort", nil}, {"GET", "/parts", nil}, {"POST", "/copy", upload{"path": "mine"}},
			{"POST", "/shares", nil}, {"DELETE", "/shares/:token", nil}, {"PATCH", "", upload{"visibility": "public"}}, {"DELETE", "", nil},
		}
		neutral := func(a response) string {
			var body struct{ Error map[string]any }
			a.json(&body)
			delete(body.Error, "requestId")
			text, _ := json.Marshal(body)
			h := a.header.Clone()
			for _, name := range []string{"X-Request-Id", "Date", "Content-Length"} {
				h.Del(name)
			}
			return fmt.Sprint(a.status, " ", len(a.body), " ", string(text), h)
		}
		for _, c := range calls {
			at := func(id string) response {
				return r.do("bob", c.method, "/storage/"+id+strings.Replace(c.path, ":token", tokens[id], 1), c.body)
			}
			absent := at("absent").want(404, "storage/not_found")
			for _, id := range []string{private.ID, pending.ID} {
				if diff := cmp.Diff(neutral(absent), neutral(at(id))); diff != "" {
					t.Errorf("%s %s tells a foreign object from an absent one: %s", c.method, c.path, diff)
				}
			}
			at(public.ID).want(403, "storage/forbidden")
		}
		// A share's token only lets its holder read.
		r.do("bob", "DELETE", "/storage/shares/"+tokens[public.ID], nil).want(403, "storage/forbidden")
		r.do("bob", "DELETE", "/storage/shares/"+tokens[private.ID], nil).want(404, "storage/not_found")
		r.do("bob", "POST", "/s/"+tokens[private.ID], nil).want(405, "kit/method_not_allowed")
		r.do("bob", "DELETE", "/storage/share/"+tokens[private.ID], nil).want(405, "kit/method_not_allowed")
		for _, user := range []string{"bob", ""} {
			absent := r.do(user, "GET", "/storage/absent", nil).want(404, "storage/not_found")
			for _, id := range []string{private.ID, pending.ID} {
				if diff := cmp.Diff(neutral(absent), neutral(r.do(user, "GET", "/storage/"+id, nil))); diff != "" {
					t.Errorf("GET as %q: %s", user, diff)
				}
			}
			if got := r.do(user, "GET", "/storage/"+public.ID, nil).want(200, ""); string(got.body) != "public" {
				t.Errorf("GET of a public object as %q: %q", user, got.body)
			}
		}
		r.do("bob", "GET", "/storage/"+public.ID+"/url", nil).want(200, "")
		r.do("bob", "GET", "/storage/"+private.ID+"/url", nil).want(404, "storage/not_found")
		for user, want := range map[string][3]int{"bob": {404, 403, 404}, "": {401, 401, 401}, "ada": {200, 200, 409}} {
			for i, id := range []string{private.ID, public.ID, pending.ID} {
				if got := r.do(user, "HEAD", "/storage/"+id, nil); got.status != want[i] {
					t.Errorf("HEAD %d as %q: %d, want %d", i, user, got.status, want[i])
				}
			}
		}
		r.wantUsage("bob", 0, 0)
	})
}

// TestTypesAsServed checks which types a browser may display.
func TestTypesAsServed(t *testing.T) {
	t.Parallel()
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		for declared, served := range map[string]string{
			"image/png": "image/png", "image/jpeg": "image/jpeg", "image/gif": "image/gif", "image/webp": "image/webp", "image/avif": "image/avif",
			"video/mp4": "video/mp4", "audio/mpeg": "audio/mpeg", "text/plain": "text/plain; charset=utf-8", "text/plain; charset=utf-7": "text/plain; charset=utf-8",
			"text/html": "", "TEXT/HTML": "", " text/html": "", "text/html;charset=x": "", "application/xhtml+xml": "", "image/svg+xml": "", "text/xml": "",
			"application/xml": "", "application/foo+xml": "", "application/mathml+xml": "", "application/rss+xml": "", "text/javascript": "",
			"application/javascript": "", "application/ecmascript": "", "text/ecmascript": "", "application/x-javascript": "", "text/vbscript": "",
			"application/x-shockwave-flash": "", "text/css": "", "text/cache-manifest": "", "application/wasm": "", "message/rfc822": "",
			"multipart/related": "", "application/x-mimearchive": "", "application/pdf": "", "application/zip": "", "application/json": "", "": "",
		} {
			o := r.put("ada", "dir/a \"b\".png", []byte("<html><script>alert(1)</script>"), "contentType", declared, "visibility", "public")
			var share struct{ Share struct{ Token string } }
			r.do("ada", "POST", "/storage/"+o.ID+"/shares", nil).want(201, "").json(&share)
			for _, at := range []string{"/storage/" + o.ID, "/s/" + share.Share.Token, "/storage/share/" + share.Share.Token} {
				got := r.do("", "GET", at, nil).want(200, "")
				disposition, kind := got.header.Get("Content-Disposition"), got.header.Get("Content-Type")
				if served != "" && (kind != served || !strings.HasPrefix(disposition, "inline;")) {
					t.Errorf("%q at %s comes as %q %q", declared, at, kind, disposition)
				}
				if served == "" && !strings.HasPrefix(disposition, "attachment;") {
					t.Errorf("%q at %s comes as %q %q", declared, at, kind, disposition)
				}
				if served == "" && strings.Contains(kind, "html") || strings.Contains(kind, "xml") || strings.Contains(kind, "script") {
					t.Errorf("%q at %s has the type %q", declared, at, kind)
				}
				csp := got.header.Get("Content-Security-Policy")
				if got.header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(csp, "sandbox") || !strings.Contains(csp, "default-src 'none'") {
					t.Errorf("%q at %s: %v", declared, at, got.header)
				}
			}
			var link struct{ URL string }
			r.do("ada", "GET", "/storage/"+o.ID+"/url", nil).want(200, "").json(&link)
			got := r.do("", "GET", link.URL, nil).want(200, "")
			if served == "" && (got.header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment")) {
				t.Errorf("%q by a signed address: %v", declared, got.header)
			}
		}
		// Refusals of these routes have the protective headers too.
		got := r.do("", "GET", "/s/unknown", nil).want(404, "storage/not_found")
		if got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Content-Security-Policy") == "" {
			t.Errorf("a refusal: %v", got.header)
		}
	})
}

func TestFileNamesInHeaders(t *testing.T) {
	buckets(t, storage.Config{}, func(t *testing.T, r *rig) {
		for name, want := range map[string]string{
			`a"b;c=d.txt`:            `attachment; filename="a_b;c=d.txt"; filename*=UTF-8''a%22b%3Bc%3Dd.txt`,
			"x/\u202Ecod.exe":        `attachment; filename="_cod.exe"`,
			"x/日本.txt":               `attachment; filename="__.txt"; filename*=UTF-8''%E6%97%A5%E6%9C%AC.txt`,
			`x/..\..\boot.ini`:       `attachment; filename=".._.._boot.ini"`,
			"100%":                   `attachment; filename="100_"; filename*=UTF-8''100%25`,
			strings.Repeat("é", 200): `attachment; filename="` + strings.Repeat("_", 100) + `"; filename*=UTF-8''` + strings.Repeat("%C3%A9", 100),
		} {
			o := r.put("ada", name, []byte("x"))
			var share struct{ Share struct{ Token string } }
			r.do("ada", "POST", "/storage/"+o.ID+"/shares", nil).want(201, "").json(&share)
			var link struct{ URL string }
			r.do("ada", "GET", "/storage/"+o.ID+"/url", nil).want(200, "").json(&link)
			for _, at := range []string{"/storage/" + o.ID, "/s/" + share.Share.Token, link.URL} {
				if got := r.do("ada", "GET", at, nil).want(200, "").header.Get("Content-Disposition"); got != want {
					t.Errorf("%q: %s, want %s", name, got, want)
				}
			}
		}
	})
}

func TestRanges(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		body := []byte("0123456789")
		o := r.put("ada", "a", body)
		at := "/storage/" + o.ID
		for header, want := range map[string]struct {
			status int
			body   string
		}{
			"bytes=0-":      {206, "0123456789"},
			"bytes=2-4":     {206, "234"},
			"bytes=-3":      {206, "789"},
			"bytes=-300":    {206, "0123456789"},
			"bytes=9-9999":  {206, "9"},
			"bytes=10-":     {416, ""},
			"bytes=-0":      {416, ""},
			"bytes=5-2":     {416, ""},
			"bytes=x":       {416, ""},
			"bytes=--1":     {416, ""},
			"items=0-1":     {200, "0123456789"},
			"Bytes=2-4":     {206, "234"},
			"bytes=0-0,2-2": {200, "0123456789"},
			"bytes=0-5,3-9": {200, "0123456789"},
			"bytes=" + strings.Repeat("0-,", 1000) + "0-": {200, "0123456789"},
		} {
			got := r.do("ada", "GET", at, nil, "Range", header)
			if got.status != want.status || want.status < 400 && string(got.body) != want.body {
				t.Errorf("%.40s: %d %q, want %d %q", header, got.status, got.body, want.status, want.body)
			}
			if got.header.Get("Content-Security-Policy") == "" || strings.HasPrefix(got.header.Get("Content-Type"), "multipart/") {
				t.Errorf("%.40s: %v", header, got.header)
			}
		}
		if got := r.do("ada", "HEAD", at, nil, "Range", "bytes=0-1"); got.status != 200 || got.header.Get("Content-Length") != "10" {
			t.Errorf("a range of HEAD: %d %v", got.status, got.header)
		}
		if got := r.do("ada", "GET", at, nil, "Range", "bytes=0-1", "If-Range", `"other"`); got.status != 200 {
			t.Errorf("If-Range with another ETag: %d", got.status)
		}
		if got := r.do("ada", "GET", at, nil, "Range", "bytes=0-1", "If-Range", o.ETag); got.status != 206 {
			t.Errorf("If-Range with the ETag: %d", got.status)
		}
		if got := r.do("ada", "GET", at, nil, "If-None-Match", o.ETag); got.status != 304 {
			t.Errorf("If-None-Match: %d", got.status)
		}
	})
}

// TestSizesThatLie sends other bytes than were declared, also on raw connections.
func TestSizesThatLie(t *testing.T) {
	t.Parallel()
	rigs(t, storage.Config{Quota: 10}, func(t *testing.T, r *rig) {
		s := r.start("ada", upload{"path": "a", "size": 5})
		at := "/storage/" + s.Object.ID
		for _, lie := range []string{"", "1", "1234", "123456", strings.Repeat("x", 1<<20)} {
			if got := r.do("", "PUT", s.Upload.URL, strings.NewReader(lie), header(s.Upload.Headers)...); got.status < 400 {
				t.Errorf("%d bytes were taken: %d", len(lie), got.status)
			}
			r.do("ada", "POST", at+"/complete", nil).want(409, "storage/upload_incomplete")
		}
		chunked := struct{ io.Reader }{strings.NewReader("12345")} // a reader of unknown length
		if got := r.do("", "PUT", s.Upload.URL, chunked, header(s.Upload.Headers)...); got.status < 400 {
			t.Errorf("a body without a length: %d", got.status)
		}
		u, err := url.Parse(s.Upload.URL)
		if err != nil {
			t.Fatal(err)
		}
		for name, request := range map[string]string{
			"ends early":    "Content-Length: 5\r\n\r\n123",
			"two lengths":   "Content-Length: 5\r\nContent-Length: 500\r\n\r\n12345",
			"both":          "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n",
			"negative":      "Content-Length: -5\r\n\r\n12345",
			"a larger body": "Content-Length: 50\r\n\r\n" + strings.Repeat("1", 50),
		} {
			conn, err := net.Dial("tcp", u.Host)
			if err != nil {
				t.Fatal(err)
			}
			lines := "PUT " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\nConnection: close\r\n"
			for key, value := range s.Upload.Headers {
				lines += key + ": " + value + "\r\n"
			}
			_, _ = io.WriteString(conn, lines+request)
			_ = conn.(*net.TCPConn).CloseWrite()
			raw, _ := io.ReadAll(conn) // a refusal may close the connection
			_ = conn.Close()
			if bytes.HasPrefix(raw, []byte("HTTP/1.1 2")) {
				t.Errorf("%s: %.100s", name, raw)
			}
			r.do("ada", "POST", at+"/complete", nil).want(409, "storage/upload_incomplete")
		}
		r.wantUsage("ada", 0, 5)
		r.do("ada", "POST", "/storage", upload{"path": "b", "size": 6}).want(413, "storage/quota_exceeded")
		r.send(s.Upload.URL, s.Upload.Headers, []byte("12345")).want(200, "")
		r.do("ada", "POST", at+"/complete", nil).want(200, "")
		if got := r.send(s.Upload.URL, s.Upload.Headers, []byte("54321")); got.status < 400 {
			t.Errorf("a PUT after complete: %d", got.status)
		}
		if got := r.do("ada", "GET", at, nil).want(200, ""); string(got.body) != "12345" {
			t.Errorf("the bytes changed after complete: %q", got.body)
		}
		r.do("ada", "DELETE", at, nil).want(204, "")
		if got := r.send(s.Upload.URL, s.Upload.Headers, []byte("54321")); got.status < 400 {
			t.Errorf("a PUT after delete: %d", got.status)
		}
	})
}

func header(m map[string]string) (list []string) {
	for key, value := range m {
		list = append(list, key, value)
	}
	return list
}

// TestTokensThatAreForged changes signed URLs of the kit bit by bit.
func TestTokensThatAreForged(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), file.New(""), small)
	o := r.put("ada", "a.txt", []byte("hello"), "contentType", "text/plain")
	single := r.start("ada", upload{"path": "b", "size": 5})
	multi := r.start("ada", upload{"path": "c", "size": 12 * mib})
	other := r.start("ada", upload{"path": "d", "size": 12 * mib})
	var link struct{ URL string }
	r.do("ada", "GET", "/storage/"+o.ID+"/url", nil).want(200, "").json(&link)
	prefix := r.server.URL + "/_kit/storage/"
	token := func(address string) (raw []byte, query string) {
		text, query, _ := strings.Cut(strings.TrimPrefix(address, prefix), "?")
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return raw, query
	}
	refused := func(what, method string, raw []byte, query, body string) {
		t.Helper()
		got := r.do("", method, prefix+base64.RawURLEncoding.EncodeToString(raw)+"?"+query, body)
		if got.status != 401 || got.code() != "kit/invalid_signature" {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	read, readQuery := token(link.URL)
	write, writeQuery := token(single.Upload.URL)
	part, _ := token(multi.Upload.Parts[0].URL)
	foreign, _ := token(other.Upload.Parts[0].URL)
	for i := range len(read) * 8 {
		flipped := bytes.Clone(read)
		flipped[i/8] ^= 1 << (i % 8)
		refused(fmt.Sprint("bit ", i), "GET", flipped, readQuery, "")
	}
	for n := 1; n < len(read); n++ {
		refused(fmt.Sprint("cut to ", n), "GET", read[:n], readQuery, "")
	}
	refused("reading by an address that writes", "GET", write, writeQuery, "")
	refused("writing by one that reads", "PUT", read, readQuery, "hello")
	refused("the query of another", "GET", read, strings.Replace(readQuery, "inline", "attachment", 1), "")
	refused("no query", "GET", read, "", "")
	refused("a query added", "GET", read, readQuery+"&type=text/html", "")
	spliced := bytes.Clone(part)
	copy(spliced[37:63], foreign[37:63])
	refused("a part of another upload", "PUT", spliced, "", "hello")
	numbered := bytes.Clone(part)
	numbered[64]++
	refused("another part", "PUT", numbered, "", "hello")
	purpose := bytes.Clone(write)
	purpose[1] = 'g'
	refused("another purpose", "GET", purpose[:37], writeQuery, "")
	r.do("", "POST", link.URL, nil).want(405, "kit/method_not_allowed")
	r.do("", "DELETE", link.URL, nil).want(405, "kit/method_not_allowed")
	r.k.Clock.Advance(time.Hour - time.Millisecond)
	r.send(single.Upload.URL, single.Upload.Headers, []byte("hello")).want(200, "")
	r.send(single.Upload.URL, single.Upload.Headers, []byte("world")).want(412, "storage/already_stored")
	r.k.Clock.Advance(time.Millisecond)
	refused("a part when it is over", "PUT", part, "", "hello")
	if err := r.s.RotateSigningKey(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.do("ada", "GET", "/storage/"+o.ID+"/url", nil).want(200, "").json(&link)
	r.do("", "GET", link.URL, nil).want(200, "")
	if raw, _ := token(link.URL); raw[2] != 2 {
		t.Errorf("signed with key %d after a rotation", raw[2])
	}
}

func TestSignedAddressesFromOtherOrigins(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), file.New(""), storage.Config{})
	s := r.start("ada", upload{"path": "b", "size": 5})
	got := r.do("", "OPTIONS", s.Upload.URL, nil, "Origin", "https://app.example", "Access-Control-Request-Method", "PUT")
	if got.status != 204 || got.header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(got.header.Get("Access-Control-Allow-Methods"), "PUT") {
		t.Errorf("preflight: %d %v", got.status, got.header)
	}
	got = r.send(s.Upload.URL, map[string]string{"Content-Type": s.Upload.Headers["Content-Type"], "Origin": "https://app.example"}, []byte("hello")).want(200, "")
	if got.header.Get("ETag") == "" || !strings.Contains(got.header.Get("Access-Control-Expose-Headers"), "ETag") {
		t.Errorf("PUT: %v", got.header)
	}
}

func TestChecksumIsVerified(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
		s := r.start("ada", upload{"path": "a", "size": 5, "sha256": strings.ToUpper(sum)})
		if got := r.send(s.Upload.URL, s.Upload.Headers, []byte("HELLO")); got.status < 400 {
			t.Errorf("other bytes: %d", got.status)
		}
		r.send(s.Upload.URL, s.Upload.Headers, []byte("hello")).want(200, "")
		var o object
		r.do("ada", "POST", "/storage/"+s.Object.ID+"/complete", nil).want(200, "").json(&o)
		if o.SHA256 == nil || *o.SHA256 != sum {
			t.Errorf("got %v", o.SHA256)
		}
	})
}

func TestShareTokensAreNotGuessed(t *testing.T) {
	t.Parallel()
	buckets(t, storage.Config{}, func(t *testing.T, r *rig) {
		o := r.put("ada", "a", []byte("x"))
		var share struct{ Share struct{ Token string } }
		r.do("ada", "POST", "/storage/"+o.ID+"/shares", nil).want(201, "").json(&share)
		if n := len(share.Share.Token); n < 26 {
			t.Fatalf("a token has %d letters", n)
		}
		near := []byte(share.Share.Token)
		near[len(near)-1] ^= 1
		r.do("", "GET", "/s/"+url.PathEscape(string(near)), nil).want(404, "storage/not_found")
		r.do("", "GET", "/s/"+strings.ToUpper(share.Share.Token), nil).want(404, "storage/not_found")
		limited := 0
		for range 10_000 {
			if got := r.do("", "GET", "/s/"+strings.ToLower(rand.Text()), nil); got.code() == "kit/rate_limited" {
				limited++
			} else {
				got.want(404, "storage/not_found")
			}
		}
		if limited == 0 {
			t.Error("10,000 guesses of one address were not limited")
		}
		r.later(time.Minute)
		r.do("", "GET", "/s/"+share.Share.Token, nil).want(200, "")
		var plain int
		if err := r.k.Database().QueryRow(context.Background(), `SELECT COUNT(*) FROM storage_share WHERE token_hash = $1 OR id = $2`,
			[]byte(share.Share.Token), share.Share.Token).Scan(&plain); err != nil || plain != 0 {
			t.Errorf("the token is kept: %d %v", plain, err)
		}
	})
}
