package heic

import (
	"bytes"
	"context"
	"encoding/json"
	"image/jpeg"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// sample returns a picture that is included in the decoder's module.
func sample(t *testing.T) []byte {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/gen2brain/heic").Output()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "test.heic"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAPhonesPictureGetsDerivatives(t *testing.T) {
	var k *kittest.Kit
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { k.ServeHTTP(w, r) }))
	defer server.Close()
	k = kittest.New(t, kit.WithBaseURL(server.URL), kit.WithAuth(auth.Config{}), kit.WithStorage(storage.Config{Bucket: file.New("")}),
		kit.WithMedia(media.Config{Decoders: map[string]media.Decoder{"image/heic": Decode}}))
	data := sample(t)
	created, err := k.Media().Create(t.Context(), media.Upload{OwnerID: "ada", Filename: "a.heic", Size: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	put, err := http.NewRequestWithContext(context.Background(), http.MethodPut, created.Upload.URL, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range created.Upload.Headers {
		put.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(put)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	_ = response.Body.Close()
	if _, err := k.Media().Finalize(t.Context(), "ada", created.Item.ID, nil); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	i, err := k.Media().Get(t.Context(), "ada", created.Item.ID)
	if err != nil || i.Status != media.StatusReady || len(i.Derivatives) != 2 || i.BlurHash == "" || i.Width < 1 {
		text, _ := json.Marshal(i)
		t.Fatalf("%s %v", text, err)
	}
	response, err = http.Get(i.Derivatives[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	thumb, err := jpeg.Decode(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := thumb.Bounds(); got.Dx() != i.Derivatives[0].Width || (got.Dx() > got.Dy()) != (i.Width > i.Height) {
		t.Errorf("a picture of %d by %d has a thumbnail of %v", i.Width, i.Height, got)
	}
}

func TestDamagedFilesAreErrors(t *testing.T) {
	whole := sample(t)
	for _, n := range []int{0, 1, 100, 1000, len(whole) / 2} {
		if img, err := Decode(io.LimitReader(bytes.NewReader(whole), int64(n))); err == nil {
			t.Errorf("%d bytes of %d give %v", n, len(whole), img.Bounds())
		}
	}
}
