package storage_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

const mib = 1 << 20

// small splits an upload of 12 MiB into three parts.
var small = storage.Config{MultipartThresholdBytes: 6 * mib, PartSizeBytes: 5 * mib}

func TestSingleUpload(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		s := r.start("ada", upload{"path": "notes/héllo wörld.txt", "size": 5, "contentType": "Text/Plain; charset=UTF-8; x=y", "metadata": map[string]string{"a": "b"}})
		if s.Upload.Mode != "single" || s.Upload.Method != "PUT" || s.Object.State != "pending" || s.Object.ExpiresAt == nil || s.Object.CompletedAt != nil {
			t.Fatalf("got %+v", s)
		}
		at := "/storage/" + s.Object.ID
		r.wantUsage("ada", 0, 5)
		for _, call := range [][2]string{{"GET", at}, {"GET", at + "/url"}, {"POST", at + "/copy"}, {"POST", at + "/shares"}, {"PATCH", at}, {"POST", at + "/complete"}} {
			var body any
			if call[0] != "GET" {
				body = upload{}
				if strings.HasSuffix(call[1], "copy") || call[0] == "PATCH" {
					body = upload{"path": "x"}
				}
			}
			r.do("ada", call[0], call[1], body).want(409, "storage/upload_incomplete")
		}
		if got := r.do("ada", "HEAD", at, nil); got.status != 409 {
			t.Errorf("HEAD of a pending object: %d", got.status)
		}
		r.send(s.Upload.URL, s.Upload.Headers, []byte("hello")).want(200, "")
		r.do("ada", "GET", at, nil).want(409, "storage/upload_incomplete")
		var o, again object
		r.do("ada", "POST", at+"/complete", nil).want(200, "").json(&o)
		r.do("ada", "POST", at+"/complete", nil).want(200, "").json(&again)
		if diff := cmp.Diff(o, again); diff != "" {
			t.Error("completed twice:", diff)
		}
		if o.State != "ready" || o.Size != 5 || o.ContentType != "text/plain; charset=UTF-8" || o.CompletedAt == nil || o.ExpiresAt != nil || o.Metadata["a"] != "b" {
			t.Errorf("got %+v", o)
		}
		if s.Object.ETag == "" || s.Object.ETag != o.ETag {
			t.Errorf("the start returned the ETag %q, completion %q", s.Object.ETag, o.ETag)
		}
		r.wantUsage("ada", 5, 0)
		got := r.do("ada", "GET", at, nil).want(200, "")
		if string(got.body) != "hello" || got.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
			got.header.Get("Content-Disposition") != `inline; filename="h_llo w_rld.txt"; filename*=UTF-8''h%C3%A9llo%20w%C3%B6rld.txt` {
			t.Errorf("got %q with %v", got.body, got.header)
		}
		head := r.do("ada", "HEAD", at, nil).want(200, "")
		if head.header.Get("Content-Length") != "5" || head.header.Get("ETag") != o.ETag || len(head.body) != 0 {
			t.Errorf("HEAD: %v", head.header)
		}
		r.do("ada", "DELETE", at, nil).want(204, "")
		r.do("ada", "GET", at, nil).want(404, "storage/not_found")
		r.wantUsage("ada", 0, 0)
	})
}

// TestBoundsOfUploads checks the largest single PUT, the largest object of 10,000 parts, and the
// default lifetime of a reservation.
func TestBoundsOfUploads(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), file.New(""), storage.Config{})
	at := r.start("ada", upload{"path": "a", "size": 100 * mib})
	if expires := r.k.Clock.Now().Add(24 * time.Hour).Format("2006-01-02T15:04:05.000Z"); at.Upload.Mode != "single" ||
		at.Object.Visibility != "private" || at.Object.ExpiresAt == nil || *at.Object.ExpiresAt != expires {
		t.Errorf("100 MiB: %s, %+v; want one private PUT until %s", at.Upload.Mode, at.Object, expires)
	}
	above := r.start("ada", upload{"path": "b", "size": 100*mib + 1})
	if above.Upload.Mode != "multipart" || above.Upload.PartSize != 64*mib || above.Upload.PartCount != 2 || above.Upload.Parts[1].Size != 36*mib+1 {
		t.Errorf("a byte more: %+v", above.Upload)
	}
	r = newRig(t, databasetest.Memory(t), file.New(""), small)
	if most := r.start("ada", upload{"path": "c", "size": int64(5 * mib * 10_000)}); most.Upload.PartCount != 10_000 {
		t.Errorf("%d parts, want 10,000", most.Upload.PartCount)
	}
	for _, cfg := range []storage.Config{{MultipartThresholdBytes: 5 << 30, PartSizeBytes: 5 << 30, PendingTTL: 7 * 24 * time.Hour},
		{MultipartThresholdBytes: 1, PartSizeBytes: 5 * mib, PendingTTL: time.Minute}} {
		if _, err := storage.New(newHost(t), cfg, storage.Peers{}); err != nil {
			t.Errorf("bounds are inclusive: %v", err)
		}
	}
}

func TestMultipartUploadResumes(t *testing.T) {
	t.Parallel()
	rigs(t, small, func(t *testing.T, r *rig) {
		body := bytesOf(12 * mib)
		s := r.start("ada", upload{"path": "film.mp4", "size": len(body), "contentType": "video/mp4"})
		if s.Upload.Mode != "multipart" || s.Upload.PartCount != 3 || len(s.Upload.Parts) != 3 || s.Upload.Parts[2].Size != 2*mib {
			t.Fatalf("got %+v", s.Upload)
		}
		at := "/storage/" + s.Object.ID
		part := func(p partURL) string {
			from := int64(p.PartNumber-1) * s.Upload.PartSize
			return r.send(p.URL, p.Headers, body[from:from+p.Size]).want(200, "").header.Get("ETag")
		}
		second := part(s.Upload.Parts[1])
		r.do("ada", "POST", at+"/complete", upload{}).want(409, "storage/upload_incomplete")
		r.do("ada", "POST", at+"/complete", upload{"parts": []upload{{"partNumber": 2, "etag": second}}}).want(500, "storage/multipart_failed")

		var progress struct {
			Stored []struct {
				PartNumber int
				Size       int64
				ETag       string
			}
			Missing    []partURL
			NextCursor *string
		}
		r.do("ada", "GET", at+"/parts?limit=2", nil).want(200, "").json(&progress)
		if len(progress.Stored) != 1 || len(progress.Missing) != 1 || progress.NextCursor == nil {
			t.Fatalf("a page of two parts: %+v", progress)
		}
		r.do("ada", "GET", at+"/parts?limit=2&cursor="+*progress.NextCursor, nil).want(200, "").json(&progress)
		if len(progress.Stored) != 0 || len(progress.Missing) != 1 || progress.Missing[0].PartNumber != 3 || progress.NextCursor != nil {
			t.Fatalf("the rest: %+v", progress)
		}
		for _, cursor := range []string{"[9223372036854775807]", "[-9223372036854775808]", "[-1]", "[4]"} {
			r.do("ada", "GET", at+"/parts?cursor="+base64.RawURLEncoding.EncodeToString([]byte(cursor)), nil).want(400, "kit/invalid_request")
		}
		r.do("ada", "GET", at+"/parts", nil).want(200, "").json(&progress)
		if len(progress.Stored) != 1 || progress.Stored[0].ETag != second || len(progress.Missing) != 2 || progress.NextCursor != nil {
			t.Fatalf("got %+v", progress)
		}
		first, third := part(progress.Missing[0]), part(progress.Missing[1])
		for _, list := range [][]upload{
			{{"partNumber": 1, "etag": first}, {"partNumber": 2, "etag": third}, {"partNumber": 3, "etag": third}},
			{{"partNumber": 2, "etag": second}, {"partNumber": 1, "etag": first}, {"partNumber": 3, "etag": third}},
			{{"partNumber": 1, "etag": first}, {"partNumber": 1, "etag": first}, {"partNumber": 3, "etag": third}},
		} {
			r.do("ada", "POST", at+"/complete", upload{"parts": list}).want(500, "storage/multipart_failed")
		}
		var o object
		r.do("ada", "POST", at+"/complete", upload{"parts": []upload{{"partNumber": 1, "etag": first}, {"partNumber": 2, "etag": second}, {"partNumber": 3, "etag": third}}}).
			want(200, "").json(&o)
		if got := r.do("ada", "GET", at, nil).want(200, ""); !bytes.Equal(got.body, body) {
			t.Errorf("other bytes came back, %d of them", len(got.body))
		}
		got := r.do("ada", "GET", at, nil, "Range", "bytes=5242870-5242889").want(206, "")
		if !bytes.Equal(got.body, body[5242870:5242890]) || got.header.Get("Content-Range") != "bytes 5242870-5242889/12582912" {
			t.Errorf("a range: %v", got.header)
		}
		r.wantUsage("ada", int64(len(body)), 0)
		if got := r.send(s.Upload.Parts[0].URL, nil, make([]byte, 64)); got.status < 400 {
			t.Errorf("a part after complete: %d", got.status)
		}
		r.do("ada", "GET", at+"/parts", nil).want(404, "storage/not_found")
		r.do("ada", "POST", at+"/abort", nil).want(404, "storage/not_found")
	})
}

// TestAnUploadThatWasMadeWholeIsStored resumes an upload whose node was killed after the bucket
// completed the object and before the row was committed.
func TestAnUploadThatWasMadeWholeIsStored(t *testing.T) {
	t.Parallel()
	rigs(t, small, func(t *testing.T, r *rig) {
		ctx, body := context.Background(), bytesOf(12*mib)
		s := r.start("ada", upload{"path": "film.mp4", "size": len(body)})
		for _, part := range s.Upload.Parts {
			at := int64(part.PartNumber-1) * s.Upload.PartSize
			r.send(part.URL, part.Headers, body[at:at+part.Size]).want(200, "")
		}
		var key string
		if err := r.k.Database().QueryRow(ctx, `SELECT object_key FROM storage_object WHERE id = $1`, s.Object.ID).Scan(&key); err != nil {
			t.Fatal(err)
		}
		parts, err := r.bucket.Parts(ctx, key, s.Upload.UploadID, 0, 10)
		if err == nil {
			_, err = r.bucket.Complete(ctx, key, s.Upload.UploadID, parts)
		}
		if err != nil {
			t.Fatal(err)
		}
		var progress storage.Progress
		r.do("ada", "GET", "/storage/"+s.Object.ID+"/parts", nil).want(200, "").json(&progress)
		if len(progress.Stored) != 3 || len(progress.Missing) != 0 || progress.Stored[2].Size != 2*mib {
			t.Fatalf("%+v", progress)
		}
		var tags []upload
		for _, p := range progress.Stored {
			tags = append(tags, upload{"partNumber": p.Number, "etag": p.ETag})
		}
		r.do("ada", "POST", "/storage/"+s.Object.ID+"/complete", upload{"parts": tags}).want(200, "")
	})
}

func TestAbortReturnsTheReservation(t *testing.T) {
	t.Parallel()
	rigs(t, small, func(t *testing.T, r *rig) {
		for _, size := range []int{7, 12 * mib} {
			s := r.start("ada", upload{"path": "a", "size": size})
			address, headers, n := s.Upload.URL, s.Upload.Headers, size
			if size > 7 {
				address, headers, n = s.Upload.Parts[0].URL, nil, 5*mib
			}
			r.wantUsage("ada", 0, int64(size))
			r.send(address, headers, bytesOf(n)).want(200, "")
			at := "/storage/" + s.Object.ID
			r.do("ada", "POST", at+"/abort", nil).want(204, "")
			r.do("ada", "POST", at+"/abort", nil).want(204, "")
			r.do("bob", "POST", at+"/abort", nil).want(404, "storage/not_found")
			r.wantUsage("ada", 0, 0)
			if got := r.send(address, headers, bytesOf(n)); got.status < 400 {
				t.Errorf("%d bytes were taken after abort: %d", n, got.status)
			}
			r.do("ada", "POST", at+"/complete", nil).want(404, "storage/not_found")
			r.do("ada", "GET", at+"/parts", nil).want(404, "storage/not_found")
			r.do("ada", "GET", at, nil).want(404, "storage/not_found")
		}
	})
}

func TestReplaceAtTheSamePath(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		old := r.put("ada", "a.txt", []byte("first"), "contentType", "text/plain")
		var share struct{ Share struct{ Token string } }
		r.do("ada", "POST", "/storage/"+old.ID+"/shares", upload{}).want(201, "").json(&share)
		fresh := r.put("ada", "a.txt", []byte("second!"))
		r.do("ada", "GET", "/storage/"+old.ID, nil).want(404, "storage/not_found")
		r.do("", "GET", "/s/"+share.Share.Token, nil).want(404, "storage/not_found")
		if got := r.do("ada", "GET", "/storage/"+fresh.ID, nil).want(200, ""); string(got.body) != "second!" {
			t.Errorf("got %q", got.body)
		}
		r.wantUsage("ada", 7, 0)
		if got := r.put("bob", "a.txt", []byte("bob's")); got.ID == fresh.ID {
			t.Error("two owners share a path")
		}
	})
}

func TestCopyRenameAndVisibility(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		o := r.put("ada", "a/one.png", []byte("picture"), "contentType", "image/png")
		at := "/storage/" + o.ID
		var copied, moved object
		r.do("ada", "POST", at+"/copy", upload{"path": "b/two.png", "visibility": "public"}).want(201, "").json(&copied)
		if copied.ID == o.ID || copied.Path != "b/two.png" || copied.Visibility != "public" || copied.ContentType != "image/png" {
			t.Errorf("got %+v", copied)
		}
		r.wantUsage("ada", 14, 0)
		r.do("ada", "PATCH", at, upload{"path": "c/three.png"}).want(200, "").json(&moved)
		if moved.ID != o.ID || moved.Path != "c/three.png" || moved.ETag != o.ETag {
			t.Errorf("got %+v", moved)
		}
		r.do("ada", "PATCH", at, upload{"path": "b/two.png"}).want(200, "") // replaces the copy
		r.do("", "GET", "/storage/"+copied.ID, nil).want(404, "storage/not_found")
		r.wantUsage("ada", 7, 0)
		r.do("", "GET", at, nil).want(404, "storage/not_found")
		r.do("ada", "PATCH", at, upload{"visibility": "public"}).want(200, "")
		got := r.do("", "GET", at, nil).want(200, "")
		if got.header.Get("Cache-Control") != "public, no-cache" || got.header.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
			t.Errorf("public: %v", got.header)
		}
		if again := r.do("", "GET", at, nil, "If-None-Match", got.header.Get("ETag")); again.status != 304 {
			t.Errorf("asked again with the ETag: %d", again.status)
		}
		r.do("ada", "PATCH", at, upload{"visibility": "private"}).want(200, "")
		r.do("", "GET", at, nil).want(404, "storage/not_found")
		r.do("ada", "PATCH", at, upload{"visibility": "secret"}).want(400, "kit/invalid_request")
		r.do("ada", "PATCH", at, upload{"path": "../x"}).want(400, "kit/invalid_request")
	})
}

func TestSharesInBothForms(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		o := r.put("ada", "a.txt", []byte("shared"), "contentType", "text/plain")
		other := r.put("ada", "b.txt", []byte("b"))
		type minted struct {
			Share struct{ ID, Token, URL, ObjectID, ExpiresAt string }
		}
		mint := func(body any) (a minted) {
			r.do("ada", "POST", "/storage/"+o.ID+"/shares", body).want(201, "").json(&a)
			return a
		}
		one, two := mint(nil), mint(upload{"expiresInSeconds": 60})
		if one.Share.URL != r.server.URL+"/s/"+one.Share.Token || one.Share.ObjectID != o.ID {
			t.Errorf("got %+v", one)
		}
		for _, form := range []string{"/s/", "/storage/share/"} {
			got := r.do("", "GET", form+one.Share.Token, nil).want(200, "")
			if string(got.body) != "shared" || got.header.Get("Cache-Control") != "private, no-store" {
				t.Errorf("%s: %q %v", form, got.body, got.header)
			}
			r.do("", "GET", form+"unknown", nil).want(404, "storage/not_found")
		}
		r.do("bob", "DELETE", "/storage/shares/"+one.Share.Token, nil).want(404, "storage/not_found")
		r.do("bob", "DELETE", "/storage/"+o.ID+"/shares/"+one.Share.Token, nil).want(404, "storage/not_found")
		r.do("ada", "DELETE", "/storage/"+other.ID+"/shares/"+one.Share.Token, nil).want(404, "storage/not_found")
		r.do("ada", "DELETE", "/storage/"+o.ID+"/shares/"+one.Share.Token, nil).want(204, "")
		r.do("", "GET", "/s/"+one.Share.Token, nil).want(404, "storage/not_found")
		r.do("ada", "DELETE", "/storage/shares/"+one.Share.Token, nil).want(404, "storage/not_found")
		three := mint(nil)
		r.do("ada", "DELETE", "/storage/shares/"+three.Share.ID, nil).want(204, "")
		edge := time.Millisecond
		if r.bucket.Name() == "s3" { // where the clock also advances by itself
			edge = 30 * time.Second
		}
		r.later(time.Minute - edge)
		r.do("", "GET", "/s/"+two.Share.Token, nil).want(200, "")
		r.later(edge)
		r.do("", "GET", "/s/"+two.Share.Token, nil).want(410, "storage/share_expired")
		r.do("", "GET", "/storage/share/"+two.Share.Token, nil).want(410, "storage/share_expired")
		for _, seconds := range []int{0, 59, -1} {
			r.do("ada", "POST", "/storage/"+o.ID+"/shares", upload{"expiresInSeconds": seconds}).want(400, "kit/invalid_request")
		}
		r.do("ada", "POST", "/storage/"+o.ID+"/shares", upload{"expiresInSeconds": 31536001}).want(400, "kit/invalid_request")
	})
}

func TestSignedAddressOfFiveMinutes(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		o := r.put("ada", "a.txt", []byte("signed"), "contentType", "text/plain")
		page := r.put("ada", "b.html", []byte("<script>"), "contentType", "text/html", "visibility", "public")
		var link, evil, forced struct{ URL, ExpiresAt string }
		r.do("ada", "GET", "/storage/"+o.ID+"/url", nil).want(200, "").json(&link)
		r.do("bob", "GET", "/storage/"+page.ID+"/url", nil).want(200, "").json(&evil)
		r.do("bob", "GET", "/storage/"+o.ID+"/url", nil).want(404, "storage/not_found")
		r.do("", "GET", "/storage/"+page.ID+"/url", nil).want(401, "auth/unauthenticated")
		if got := r.do("", "GET", link.URL, nil).want(200, ""); string(got.body) != "signed" || !strings.HasPrefix(got.header.Get("Content-Disposition"), "inline") {
			t.Errorf("%q %v", got.body, got.header)
		}
		if got := r.do("", "GET", link.URL, nil, "Range", "bytes=1-2").want(206, ""); string(got.body) != "ig" {
			t.Errorf("a range: %q", got.body)
		}
		got := r.do("", "GET", evil.URL, nil).want(200, "")
		if got.header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("stored HTML comes as %v", got.header)
		}
		r.do("ada", "GET", "/storage/"+o.ID+"/url?download=1", nil).want(200, "").json(&forced)
		if got := r.do("", "GET", forced.URL, nil).want(200, ""); !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("download=1: %v", got.header)
		}
		if r.bucket.Name() == "file" {
			r.k.Clock.Advance(5*time.Minute - time.Millisecond)
			r.do("", "GET", link.URL, nil).want(200, "")
			r.k.Clock.Advance(time.Millisecond)
			r.do("", "GET", link.URL, nil).want(401, "kit/invalid_signature")
		}
	})
}

func TestListByPrefix(t *testing.T) {
	t.Parallel()
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		paths := []string{"a", "a/1", "a/2/x", "a/2/y", "a/2z", "a0", "b/é/1", "b/é/2", "ba"}
		for _, p := range paths {
			if _, err := r.s.Put(context.Background(), storage.Upload{OwnerID: "ada", Path: p, Size: 1}, strings.NewReader("x")); err != nil {
				t.Fatal(err)
			}
		}
		r.put("bob", "a/bob", []byte("b"))
		r.start("ada", upload{"path": "a/pending", "size": 1})
		// list reads all pages of a few entries, objects and prefixes in order.
		list := func(query string, limit int) (all []string) {
			for cursor := ""; ; {
				var page struct {
					Items      []object
					Prefixes   []string
					NextCursor *string
				}
				r.do("ada", "GET", path("/storage?limit=%d&cursor=%s&%s", limit, url.QueryEscape(cursor), query), nil).want(200, "").json(&page)
				if n := len(page.Items) + len(page.Prefixes); n > limit || page.NextCursor != nil && n < limit {
					t.Fatalf("%s: a page of %d", query, n)
				}
				for _, o := range page.Items {
					all = append(all, o.Path)
				}
				all = append(all, page.Prefixes...)
				if page.NextCursor == nil {
					return all
				}
				cursor = *page.NextCursor
			}
		}
		for query, want := range map[string][]string{
			"":                             paths,
			"prefix=a/":                    {"a/1", "a/2/x", "a/2/y", "a/2z"},
			"prefix=a":                     {"a", "a/1", "a/2/x", "a/2/y", "a/2z", "a0"},
			"prefix=nothing":               nil,
			"delimiter=/":                  {"a", "a/", "a0", "b/", "ba"},
			"delimiter=/&prefix=a/":        {"a/1", "a/2/", "a/2z"},
			"delimiter=/&prefix=a/2":       {"a/2/", "a/2z"},
			"delimiter=/&prefix=b/":        {"b/é/"},
			"delimiter=/&prefix=b/%C3%A9/": {"b/é/1", "b/é/2"},
		} {
			if got := list(query, 1); cmp.Diff(want, got) != "" {
				t.Errorf("%q one by one: %q, want %q", query, got, want)
			}
			if got := list(query, 200); len(got) != len(want) {
				t.Errorf("%q at once: %q, want %q", query, got, want)
			}
		}
		for _, delimiter := range []string{"", "/"} {
			page, err := r.s.List(context.Background(), storage.Filter{OwnerID: "ada", Delimiter: delimiter}, capability.Page{})
			if want := len(list("delimiter="+delimiter, 200)); err != nil || len(page.Items)+len(page.Prefixes) != want {
				t.Errorf("the zero page with delimiter %q: %d of %d: %v", delimiter, len(page.Items)+len(page.Prefixes), want, err)
			}
		}
		r.do("ada", "GET", "/storage?delimiter=x", nil).want(400, "kit/invalid_request")
		r.do("ada", "GET", "/storage?cursor=!", nil).want(400, "kit/invalid_request")
		r.do("ada", "GET", "/storage?limit=201", nil).want(400, "kit/invalid_request")
	})
}

func TestListsGoOnBehindTheLongestPaths(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), file.New(""), storage.Config{})
	for _, letter := range []string{"a", "&", `"`, "\u2028"} { // JSON escapes some of them
		long := strings.Repeat(letter, (storage.MaxPath-1)/len(letter))
		for _, name := range []string{"1", "2"} {
			r.put("ada", long+name, []byte("x"))
		}
		var page storage.Listing
		at := "/storage?limit=1&prefix=" + url.QueryEscape(long)
		r.do("ada", "GET", at, nil).want(200, "").json(&page)
		r.do("ada", "GET", at+"&cursor="+*page.NextCursor, nil).want(200, "").json(&page)
		if len(page.Items) != 1 || page.Items[0].Path != long+"2" {
			t.Errorf("%q: %+v", letter, page)
		}
	}
}
