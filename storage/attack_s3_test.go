package storage_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
)

// TestAddressesOfS3ThatAreForged changes signed URLs of an S3 server: the server refuses each, and
// nothing becomes readable.
func TestAddressesOfS3ThatAreForged(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), buckettest.S3(t), small)
	o := r.put("ada", "a.html", []byte("<script>"), "contentType", "text/html")
	single := r.start("ada", upload{"path": "b", "size": 5})
	multi := r.start("ada", upload{"path": "c", "size": 12 * mib})
	other := r.start("ada", upload{"path": "d", "size": 12 * mib})
	var link struct{ URL string }
	r.do("ada", "GET", "/storage/"+o.ID+"/url", nil).want(200, "").json(&link)
	with := func(address string, change map[string]string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		for name, value := range change {
			q.Set(name, value)
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	refused := func(what, method, address, body string, header ...string) {
		t.Helper()
		if got := r.do("", method, address, strings.NewReader(body), header...); got.status < 400 {
			t.Errorf("%s: %d", what, got.status)
		}
	}
	part := multi.Upload.Parts[0]
	signature := url.Values{}
	if u, err := url.Parse(link.URL); err == nil {
		signature = u.Query()
	}
	for i := range signature.Get("X-Amz-Signature") {
		flipped := []byte(signature.Get("X-Amz-Signature"))
		flipped[i] ^= 1
		if i%8 == 0 {
			refused("a flipped signature", "GET", with(link.URL, map[string]string{"X-Amz-Signature": string(flipped)}), "")
		}
	}
	refused("shown in place of saved", "GET", with(link.URL, map[string]string{"response-content-disposition": "inline"}), "")
	refused("with its declared type", "GET", with(link.URL, map[string]string{"response-content-type": "text/html"}), "")
	refused("a longer life", "GET", with(link.URL, map[string]string{"X-Amz-Expires": "604800"}), "")
	refused("writing by an address that reads", "PUT", link.URL, "hello")
	refused("deleting by it", "DELETE", link.URL, "")
	refused("reading by an address that writes", "GET", single.Upload.URL, "")
	refused("another type", "PUT", single.Upload.URL, "hello", append(header(single.Upload.Headers), "Content-Type", "text/html")...)
	refused("without what may not be there", "PUT", single.Upload.URL, "hello", "Content-Type", single.Upload.Headers["Content-Type"])
	refused("another part", "PUT", with(part.URL, map[string]string{"partNumber": "3"}), "hello")
	refused("a part of another upload", "PUT", with(part.URL, map[string]string{"uploadId": other.Upload.UploadID}), "hello")
	if u, err := url.Parse(link.URL); err == nil {
		bare := *u
		bare.RawQuery = ""
		refused("no signature", "GET", bare.String(), "")
		bare.Path = bare.Path[:strings.LastIndex(bare.Path, "/")+1]
		refused("the list of what there is", "GET", bare.String(), "")
	}
	r.do("ada", "POST", "/storage/"+single.Object.ID+"/complete", nil).want(409, "storage/upload_incomplete")
	brief, err := r.s.Sign(t.Context(), storage.ByID(o.ID), storage.SignOptions{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.do("", "GET", brief.URL, nil).want(200, "")
	for began := time.Now(); ; { // the server has its own clock
		if got := r.do("", "GET", brief.URL, nil); got.status == 403 {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("an address of a second is good for twenty")
		}
	}
}

// TestSharesOnBothBuckets checks shares that end in every way.
func TestSharesOnBothBuckets(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		share := func(o object) (token, id string) {
			var made struct{ Share struct{ Token, ID string } }
			r.do("ada", "POST", "/storage/"+o.ID+"/shares", nil).want(201, "").json(&made)
			return made.Share.Token, made.Share.ID
		}
		o := r.put("ada", "a", []byte("first"))
		replaced, _ := share(o)
		r.do("", "GET", "/s/"+replaced, nil).want(200, "")
		r.do("", "PUT", "/s/"+replaced, "other").want(405, "kit/method_not_allowed")
		next := r.put("ada", "a", []byte("second"))
		r.do("", "GET", "/s/"+replaced, nil).want(404, "storage/not_found")
		revoked, id := share(next)
		deleted, _ := share(next)
		r.do("ada", "DELETE", "/storage/shares/"+id, nil).want(204, "")
		r.do("", "GET", "/s/"+revoked, nil).want(404, "storage/not_found")
		r.do("ada", "DELETE", "/storage/"+next.ID, nil).want(204, "")
		r.do("", "GET", "/s/"+deleted, nil).want(404, "storage/not_found")
	})
}
