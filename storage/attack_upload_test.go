package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// TestPartsThatLie sends parts of wrong sizes and completes with invalid parts; the upload can be
// resumed after each.
func TestPartsThatLie(t *testing.T) {
	t.Parallel()
	buckets(t, small, func(t *testing.T, r *rig) {
		body := bytesOf(12 * mib)
		s := r.start("ada", upload{"path": "film", "size": len(body)})
		at := "/storage/" + s.Object.ID
		tags := make([]upload, len(s.Upload.Parts))
		for i, p := range s.Upload.Parts {
			from := int64(p.PartNumber-1) * s.Upload.PartSize
			for _, size := range []int64{0, 1, p.Size - 1, p.Size + 1} {
				if got := r.send(p.URL, p.Headers, bytesOf(int(size))); got.status < 400 {
					t.Errorf("part %d of %d bytes in place of %d: %d", p.PartNumber, size, p.Size, got.status)
				}
			}
			r.do("ada", "POST", at+"/complete", upload{}).want(409, "storage/upload_incomplete")
			etag := r.send(p.URL, p.Headers, body[from:from+p.Size]).want(200, "").header.Get("ETag")
			tags[i] = upload{"partNumber": p.PartNumber, "etag": etag}
		}
		for what, parts := range map[string][]upload{
			"part 0":       {{"partNumber": 0, "etag": tags[0]["etag"]}, tags[1], tags[2]},
			"part -1":      {{"partNumber": -1, "etag": tags[0]["etag"]}, tags[1], tags[2]},
			"part 10,001":  {tags[0], tags[1], tags[2], {"partNumber": 10_001, "etag": tags[2]["etag"]}},
			"a part more":  {tags[0], tags[1], tags[2], {"partNumber": 4, "etag": tags[2]["etag"]}},
			"a part less":  {tags[0], tags[1]},
			"no ETag":      {tags[0], {"partNumber": 2, "etag": ""}, tags[2]},
			"another ETag": {tags[0], {"partNumber": 2, "etag": `"0123456789abcdef0123456789abcdef"`}, tags[2]},
		} {
			got := r.do("ada", "POST", at+"/complete", upload{"parts": parts})
			if code := got.code(); code != "storage/multipart_failed" && code != "kit/invalid_request" {
				t.Errorf("%s: %d %s", what, got.status, got.body)
			}
			r.do("ada", "GET", at, nil).want(409, "storage/upload_incomplete")
		}
		r.do("ada", "POST", at+"/complete", upload{"parts": tags}).want(200, "")
		if got := r.do("ada", "GET", at, nil).want(200, ""); !bytes.Equal(got.body, body) {
			t.Error("other bytes came back")
		}
	})
}

// TestDeleteDuringRead deletes and replaces objects while they are read: a reader gets all bytes of
// the object it opened, or is disconnected.
func TestDeleteDuringRead(t *testing.T) {
	t.Parallel()
	buckets(t, storage.Config{}, func(t *testing.T, r *rig) {
		body := bytesOf(8 * mib)
		for _, ends := range []func(o object){
			func(o object) { r.do("ada", "DELETE", "/storage/"+o.ID, nil).want(204, "") },
			func(object) { r.put("ada", "a", bytes.Repeat([]byte("x"), len(body))) },
		} {
			o := r.put("ada", "a", body)
			q, err := http.NewRequestWithContext(t.Context(), "GET", r.server.URL+"/storage/"+o.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer "+r.token("ada"))
			response, err := http.DefaultTransport.RoundTrip(q)
			if err != nil {
				t.Fatal(err)
			}
			began := make([]byte, mib)
			if _, err := io.ReadFull(response.Body, began); err != nil {
				t.Fatal(err)
			}
			ends(o)
			r.k.RunJobs()
			rest, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if got := slices.Concat(began, rest); !bytes.HasPrefix(body, got) || err == nil && len(got) != len(body) {
				t.Errorf("%d bytes came, or others: %v", len(got), err)
			}
			r.do("ada", "GET", "/storage/"+o.ID, nil).want(404, "storage/not_found")
		}
	})
}

// TestBodiesThatStopComing checks that the kit's signed URLs end a body that stalls, and its
// connection. On S3 this is up to the server.
func TestBodiesThatStopComing(t *testing.T) {
	t.Parallel() // it waits for the 5 seconds that a body may take
	r := newRig(t, databasetest.Memory(t), file.New(t.TempDir()), small)
	starts := []started{r.start("ada", upload{"path": "small", "size": 5}), r.start("ada", upload{"path": "large", "size": 12 * mib})}
	signed := []partURL{{Size: 5, URL: starts[0].Upload.URL, Headers: starts[0].Upload.Headers}, starts[1].Upload.Parts[0]}
	many(len(signed), func(i int) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL, "http://"))
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		lines := fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: kit\r\nContent-Length: %d\r\n", strings.TrimPrefix(signed[i].URL, r.server.URL), signed[i].Size)
		for name, value := range signed[i].Headers {
			lines += name + ": " + value + "\r\n"
		}
		_, err = io.WriteString(conn, lines+"\r\nhel")
		if err := errors.Join(err, conn.SetReadDeadline(time.Now().Add(20*time.Second))); err != nil {
			t.Error(err)
		}
		got, err := io.ReadAll(conn) // until the connection is closed
		if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 400 ")) {
			t.Errorf("a body of %d that stops: %v %.400s", signed[i].Size, err, got)
		}
	})
	for _, s := range starts {
		r.do("ada", "POST", "/storage/"+s.Object.ID+"/complete", nil).want(409, "storage/upload_incomplete")
		r.do("ada", "POST", "/storage/"+s.Object.ID+"/abort", nil).want(204, "")
	}
	r.wantUsage("ada", 0, 0)
}
