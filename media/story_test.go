package media_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
)

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		s, err := storage.New(h, storage.Config{}, storage.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		m, err := media.New(h, media.Config{BasePath: basePath}, media.Peers{Storage: s})
		if err != nil {
			return capability.Capability{}, err
		}
		return m.Capability(), nil
	})
}

func TestWithoutStorageIsAnAssemblyFault(t *testing.T) {
	_, err := kittest.Compose(t, kit.WithAuth(auth.Config{}), kit.WithMedia(media.Config{}))
	var fault *capability.Fault
	if !errors.As(err, &fault) || fault.Capability != media.Name || !has(err.Error(), "storage") {
		t.Errorf("want a fault of media that names storage: %v", err)
	}
}

func TestEveryFaultAtOnce(t *testing.T) {
	_, err := kittest.Compose(t, kit.WithAuth(auth.Config{}), kit.WithStorage(storage.Config{}), kit.WithMedia(media.Config{
		Derivatives: []media.Size{{Name: "A B", Width: 9999, Height: -1, Quality: 101}, {Name: "x", Width: 1, Height: 1}, {Name: "x", Width: 1, Height: 1}},
		Kinds:       []media.Kind{"song"}, MaxPixels: -1, MaxImageBytes: -1, MaxBytes: -1, Strip: "some", DecodeTimeout: time.Hour, BlockFlagged: true}))
	if err == nil {
		t.Fatal("want faults")
	}
	for _, key := range []string{"derivatives[0].name", "derivatives[0].width", "derivatives[0].height", "derivatives[0].quality",
		"derivatives[2].name", "kinds[0]", "maxPixels", "maxImageBytes", "maxBytes", "strip", "decodeTimeoutMs", "blockFlagged"} {
		if !has(err.Error(), key) {
			t.Errorf("no fault of %s", key)
		}
	}
}

func TestAPictureFromUploadToDeletion(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		var ready []hooks.MediaReady
		r.k.Hooks().MediaReady.After(func(_ context.Context, e hooks.MediaReady) { ready = append(ready, e) })
		data := withExif(jpegOf(scene(1600, 1000, 1), 90), 6)
		c := r.upload("ada", "beach.jpg", data, "contentType", "image/jpeg", "caption", "At the sea")
		if c.Item.Status != "pending" || c.Upload == nil {
			t.Fatalf("want a pending item with an upload: %+v", c)
		}
		r.finalize("ada", c.Item.ID, 202, "")
		r.finalize("ada", c.Item.ID, 202, "")
		if i := r.get("ada", c.Item.ID); i.Status != "processing" {
			t.Fatalf("want processing: %s", i.Status)
		}
		r.k.RunJobs()
		i := r.get("ada", c.Item.ID)
		if i.Status != "ready" || i.Kind != "image" || i.ContentType != "image/jpeg" || i.Width != 1000 || i.Height != 1600 || i.Orientation != 6 {
			t.Fatalf("want a ready, upright picture: %+v", i)
		}
		if i.TakenAt == nil || *i.TakenAt != "2024-05-06T07:08:09.000Z" || i.Location != nil || len(i.BlurHash) != 28 || i.PHash == nil {
			t.Errorf("want a time, no place, a placeholder and a hash: %+v", i)
		}
		if len(i.Derivatives) != 2 || i.Derivatives[0].Name != "thumb" || i.Derivatives[0].Width != 200 || i.Derivatives[0].Height != 320 || i.Derivatives[1].Width != 800 {
			t.Fatalf("want thumb 200 by 320 and preview 800 by 1280: %+v", i.Derivatives)
		}
		thumb, err := jpeg.Decode(bytes.NewReader(r.fetch(i.Derivatives[0].URL)))
		if err != nil {
			t.Fatal(err)
		}
		if red, green, _, _ := thumb.At(190, 10).RGBA(); red < 0xd000 || green > 0x3000 {
			t.Errorf("want the red corner at the top right of a picture turned by a quarter: %x %x", red, green)
		}
		original := r.fetch(i.Original.URL)
		if sum := sha256.Sum256(original); i.SHA256 == nil || *i.SHA256 != hex.EncodeToString(sum[:]) || int64(len(original)) != i.Size {
			t.Error("want the checksum and the size of what is kept")
		}
		if sum := sha256.Sum256(data); *i.SourceSHA256 != hex.EncodeToString(sum[:]) || *i.SourceSHA256 == *i.SHA256 {
			t.Error("want the checksum of what was uploaded too, and the place removed")
		}
		if len(ready) != 1 || ready[0].MediaID != i.ID || ready[0].OwnerID != "ada" {
			t.Errorf("want the hook once: %+v", ready)
		}
		want := i.Size + i.Derivatives[0].Size + i.Derivatives[1].Size
		if used := r.used("ada"); used != want {
			t.Errorf("ada uses %d bytes, want %d: the item with all that belongs to it", used, want)
		}
		r.k.User("ada").Get("/storage/"+i.ObjectID).Want(404, "storage/not_found")
		r.k.User("ada").Get("/storage/"+i.ObjectID+"/url").Want(404, "storage/not_found")

		again := r.create("ada", "same.jpg", data, "sha256", *i.SourceSHA256)
		if again.Upload != nil || again.DuplicateOf == nil || *again.DuplicateOf != i.ID {
			t.Errorf("want the duplicate and no upload: %+v", again)
		}
		if other := r.create("bob", "same.jpg", data, "sha256", *i.SourceSHA256); other.DuplicateOf != nil {
			t.Error("want no duplicate among items of others")
		}
		if allowed := r.create("ada", "same.jpg", data, "sha256", *i.SourceSHA256, "onDuplicate", "allow"); allowed.Upload == nil {
			t.Error("want an upload where duplicates are allowed")
		} else {
			r.k.User("ada").Do("DELETE", "/media/"+allowed.Item.ID, nil).Want(204, "")
		}
		r.k.User("ada").Do("DELETE", "/media/"+i.ID, nil).Want(204, "")
		r.k.User("ada").Get("/media/"+i.ID).Want(404, "media/not_found")
		if used := r.used("ada"); used != 0 {
			t.Errorf("ada uses %d bytes after the deletion, want 0", used)
		}
	})
}

func TestItemsOfOthersAreAbsent(t *testing.T) {
	r := memory(t, media.Config{})
	i := r.process("ada", "a.png", pngOf(scene(64, 64, 1)))
	bob := r.k.User("bob")
	bob.Get("/media/"+i.ID).Want(404, "media/not_found")
	bob.Do("DELETE", "/media/"+i.ID, nil).Want(404, "media/not_found")
	bob.Post("/media/"+i.ID+"/finalize", body{}).Want(404, "media/not_found")
	bob.Post("/media/duplicates", body{"id": i.ID}).Want(404, "media/not_found")
	public := r.process("ada", "b.png", pngOf(scene(64, 64, 2)), "visibility", "public")
	if got := r.get("bob", public.ID); got.Status != "ready" {
		t.Errorf("want a public item for everybody: %+v", got)
	}
	bob.Do("DELETE", "/media/"+public.ID, nil).Want(404, "media/not_found")
}

func TestListsByKindAndStatus(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		a := r.process("ada", "a.png", pngOf(scene(64, 64, 1)))
		b := r.process("ada", "b.mp4", film(true))
		c := r.create("ada", "c.png", []byte("later"), "contentType", "image/png")
		for query, want := range map[string][]string{"": {c.Item.ID, b.ID, a.ID}, "?kind=video": {b.ID}, "?status=ready": {b.ID, a.ID},
			"?kind=image&status=pending": {c.Item.ID}, "?status=failed": nil} {
			var list struct{ Items []item }
			r.k.User("ada").Get("/media"+query).Want(200, "").JSON(&list)
			var got []string
			for _, i := range list.Items {
				got = append(got, i.ID)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%q: %v, want %v", query, got, want)
			}
		}
		var page struct {
			Items      []item
			NextCursor string
		}
		r.k.User("ada").Get("/media?limit=1").Want(200, "").JSON(&page)
		r.k.User("ada").Get("/media?limit=1&cursor="+page.NextCursor).Want(200, "").JSON(&page)
		if page.Items[0].ID != b.ID {
			t.Error("want the second item on the second page")
		}
		r.k.User("ada").Get("/media?kind=song").Want(400, "kit/invalid_request")
	})
}

func TestRefusals(t *testing.T) {
	r := memory(t, media.Config{MaxPixels: 10_000, MaxBytes: 1 << 20})
	ada := r.k.User("ada")
	for name, b := range map[string]body{
		"no name": {"size": 1}, "no size": {"filename": "a"}, "dots": {"filename": "..", "size": 1}, "kind": {"filename": "a", "size": 1, "kind": "song"},
		"visibility": {"filename": "a", "size": 1, "visibility": "secret"}, "sha": {"filename": "a", "size": 1, "sha256": "xyz"},
		"type": {"filename": "a", "size": 1, "contentType": "nonsense"}, "duplicate": {"filename": "a", "size": 1, "onDuplicate": "maybe"},
		"caption": {"filename": "a", "size": 1, "caption": strings.Repeat("a", media.MaxCaption+1)},
	} {
		t.Run(name, func(*testing.T) { ada.Post("/media", b).Want(400, "kit/invalid_request") })
	}
	got := ada.Post("/media", body{"filename": "a", "size": 1<<20 + 1}).Want(413, "kit/body_too_large")
	if !strings.Contains(string(got.Body), `"details":{"maxBytes":1048576}`) {
		t.Errorf("the refusal of a large file lacks the limit: %s", got.Body)
	}
	ada.Get("/media/none").Want(404, "media/not_found")

	c := r.create("ada", "a.png", pngOf(scene(10, 10, 1)))
	r.finalize("ada", c.Item.ID, 409, "media/not_uploaded")
	ada.Post("/media/duplicates", body{"id": c.Item.ID}).Want(409, "media/not_ready")
	for _, b := range []body{{}, {"id": "a", "phash": "b"}, {"phash": "xyz"}, {"id": "a", "maxDistance": 17}, {"id": "a", "limit": 101}, {"sha256": "12"}} {
		ada.Post("/media/duplicates", b).Want(400, "kit/invalid_request")
	}
	whole := pngOf(scene(60, 60, 1))
	for name, x := range map[string]struct {
		data []byte
		kind string
		code string
	}{
		"drawing":    {[]byte(`<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>`), "", "415 media/unsupported_type"},
		"playlist":   {[]byte("#EXTM3U\nfile:///etc/passwd\n"), "", "415 media/unsupported_type"},
		"page":       {[]byte("<html><script>alert(1)</script>"), "image", "415 media/unsupported_type"},
		"other kind": {whole, "video", "415 media/unsupported_type"},
		"pixels":     {pngOf(image.NewGray(image.Rect(0, 0, 101, 100))), "", "422 media/too_many_pixels"},
		"cut header": {whole[:20], "", "422 media/corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.used("ada")
			c := r.upload("ada", "x.jpg", x.data, "contentType", "image/jpeg", "kind", x.kind)
			status, code, _ := strings.Cut(x.code, " ")
			for range 2 { // the second time too
				response := ada.Post("/media/"+c.Item.ID+"/finalize", body{})
				if fmt.Sprint(response.Status) != status || response.Code() != code {
					t.Fatalf("%d %s, want %s", response.Status, response.Code(), x.code)
				}
			}
			if i := r.get("ada", c.Item.ID); i.Status != "failed" || i.Error == nil || i.Error.Code != code {
				t.Errorf("want a failed item that says why: %+v", i)
			}
			if r.used("ada") != before {
				t.Error("want the refused bytes removed")
			}
		})
	}
}

func TestQuotaHoldsForMedia(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), media.Config{}, storage.Config{Quota: 1000})
	r.k.User("ada").Post("/media", body{"filename": "a.png", "size": 1001}).Want(413, "storage/quota_exceeded")
}

func TestDerivativesBeyondTheQuotaFailAndTryAgain(t *testing.T) {
	data := pngOf(scene(300, 300, 1))
	r := newRig(t, databasetest.Memory(t), media.Config{}, storage.Config{Quota: int64(len(data)) + 100})
	i := r.process("ada", "a.png", data)
	if i.Status != "failed" || i.Error.Code != "media/processing_failed" {
		t.Fatalf("want an item that failed for want of room: %+v", i)
	}
	r.finalize("ada", i.ID, 202, "")
	if i := r.get("ada", i.ID); i.Status != "processing" {
		t.Errorf("want another try: %s", i.Status)
	}
}

func TestTruncatedPicturesAreRefused(t *testing.T) {
	r := memory(t, media.Config{})
	whole := jpegOf(scene(400, 300, 3), 90)
	for n := 1024; n < len(whole); n += 1024 * (1 + len(whole)/8192) {
		i := r.process("ada", "cut.jpg", whole[:n])
		if i.Status != "failed" || i.Error.Code != "media/corrupt" {
			t.Errorf("of %d bytes %d: %s %+v, want media/corrupt", len(whole), n, i.Status, i.Error)
		}
	}
}

func TestOnePixelAndWrongExtension(t *testing.T) {
	r := memory(t, media.Config{})
	img := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	img.Set(0, 0, color.NRGBA{1, 2, 3, 100})
	i := r.process("ada", "clip.mp4", pngOf(img), "contentType", "video/mp4")
	if i.Status != "ready" || i.Kind != "image" || i.ContentType != "image/png" || i.PHash != nil || i.Derivatives[0].Width != 1 || i.Derivatives[0].ContentType != "image/png" {
		t.Errorf("want a picture of one pixel that looks like nothing: %+v", i)
	}
}

// TestUploadsThatCannotEndWellDoNotBegin creates items in an application that takes pictures alone.
func TestUploadsThatCannotEndWellDoNotBegin(t *testing.T) {
	r := memory(t, media.Config{Kinds: []media.Kind{media.KindImage}, MaxImageBytes: 1000})
	ada := r.k.User("ada")
	ada.Post("/media", body{"filename": "a.mp4", "size": 10, "kind": "video"}).Want(415, "media/unsupported_type")
	for _, declared := range []string{"", "image/png", "video/mp4"} {
		ada.Post("/media", body{"filename": "a", "size": 1001, "contentType": declared}).Want(413, "kit/body_too_large")
		ada.Post("/media", body{"filename": "a", "size": 1000, "contentType": declared}).Want(201, "")
	}
	if got := ada.Post("/media", body{"filename": "a\nb.png", "size": 10}).Want(400, "kit/invalid_request"); !strings.Contains(string(got.Body), "filename") {
		t.Errorf("the refusal of a name: %s", got.Body)
	}
}

func TestTheBytesDecideHowAnOriginalIsServed(t *testing.T) {
	r := memory(t, media.Config{Kinds: []media.Kind{media.KindImage, media.KindOther}})
	for _, declared := range []string{"", "text/plain", "video/mp4"} {
		for served, data := range map[string][]byte{"image/png inline": pngOf(scene(30, 20, 3)), "application/octet-stream attachment": []byte("a text")} {
			i := r.process("ada", "a", data, "contentType", declared)
			response, err := http.Get(i.Original.URL) //nolint:gosec,noctx // an address of the test's own server
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			how, _, _ := strings.Cut(response.Header.Get("Content-Disposition"), ";")
			if got := response.Header.Get("Content-Type") + " " + how; got != served {
				t.Errorf("declared as %q: served as %s, want %s", declared, got, served)
			}
		}
	}
}

func TestFilmsAndSoundsAreProbed(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		i := r.process("ada", "a.mp4", film(true))
		if i.Kind != "video" || i.Status != "ready" || i.Width != 1080 || i.Height != 1920 || i.DurationMs != 2500 || i.FrameRate != 30 || i.Codec != "avc1" || !i.HasAudio {
			t.Errorf("want a turned film of 2.5 s at 30 a second: %+v", i)
		}
		if i := r.process("ada", "b.mp4", film(false), "kind", "audio"); i.Kind != "audio" || i.Codec != "mp4a" {
			t.Errorf("want a sound: %+v", i)
		}
		if i := r.process("ada", "c.mp4", film(true), "kind", "audio"); i.Status != "failed" || i.Error.Code != "media/unsupported_type" {
			t.Errorf("want a film refused as a sound: %+v", i)
		}
		if i := r.process("ada", "d.mp4", film(true)[:700]); i.Status != "failed" || i.Error.Code != "media/corrupt" {
			t.Errorf("want a film without its end refused: %+v", i)
		}
	})
}

func TestDuplicatesAreFound(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		img := scene(640, 480, 1)
		a := r.process("ada", "a.jpg", jpegOf(img, 95))
		tagged := r.process("ada", "b.jpg", withExif(jpegOf(img, 40), 1))
		twin := r.process("ada", "c.jpg", jpegOf(img, 95), "onDuplicate", "allow")
		r.process("ada", "d.jpg", jpegOf(scene(640, 480, 4), 95))
		r.process("bob", "e.jpg", jpegOf(img, 95))
		var found struct {
			Matches []struct {
				Item     item
				Distance int
				Exact    bool
			}
		}
		r.k.User("ada").Post("/media/duplicates", body{"id": a.ID}).Want(200, "").JSON(&found)
		if m := found.Matches; len(m) != 2 || m[0].Item.ID != twin.ID || !m[0].Exact || m[1].Item.ID != tagged.ID || m[1].Exact || m[1].Distance > 8 {
			t.Errorf("want the twin, then the recompressed one: %+v", m)
		}
		r.k.User("ada").Post("/media/duplicates", body{"sha256": *a.SourceSHA256}).Want(200, "").JSON(&found)
		if len(found.Matches) != 2 || !found.Matches[0].Exact {
			t.Errorf("want both of these bytes: %+v", found.Matches)
		}
		r.k.User("ada").Post("/media/duplicates", body{"phash": *a.PHash, "limit": 1}).Want(200, "").JSON(&found)
		if len(found.Matches) != 1 {
			t.Errorf("want one match of three: %+v", found.Matches)
		}
	})
}

type analyzer func() (media.Analysis, error)

func (f analyzer) Analyze(_ context.Context, _ media.Item, picture io.Reader) (media.Analysis, error) {
	if _, err := jpeg.Decode(picture); err != nil {
		return media.Analysis{}, err
	}
	return f()
}

func TestAnalyzerDescribesAndBlocks(t *testing.T) {
	flagged := analyzer(func() (media.Analysis, error) {
		return media.Analysis{Caption: "a wave", Moderation: media.Moderation{Flagged: true, Categories: []string{"test"}}}, nil
	})
	r := memory(t, media.Config{Analyzer: flagged})
	if i := r.process("ada", "a.jpg", jpegOf(scene(64, 64, 1), 90)); i.AI == nil || i.AI.Caption != "a wave" || !i.AI.Moderation.Flagged {
		t.Errorf("want a description: %+v", i)
	}
	r = memory(t, media.Config{Analyzer: flagged, BlockFlagged: true})
	i := r.process("ada", "a.jpg", jpegOf(scene(64, 64, 1), 90))
	if i.Status != "failed" || i.Error.Code != "media/moderation_rejected" || r.used("ada") != 0 {
		t.Errorf("want a refused item without bytes: %+v", i)
	}
	r.finalize("ada", i.ID, 422, "media/moderation_rejected")
	r = memory(t, media.Config{Analyzer: analyzer(func() (media.Analysis, error) { return media.Analysis{}, errors.New("down") })})
	if i := r.process("ada", "a.jpg", jpegOf(scene(64, 64, 1), 90)); i.Status != "ready" || i.AI != nil {
		t.Errorf("want an item without a description: %+v", i)
	}
}

func TestAHookRefusesAndTheItemIsTriedAgain(t *testing.T) {
	r := memory(t, media.Config{})
	fails := true
	r.k.Hooks().MediaReady.In(func(context.Context, hooks.MediaReady) error {
		if fails {
			return errors.New("not yet")
		}
		return nil
	})
	i := r.process("ada", "a.png", pngOf(scene(64, 64, 1)))
	if i.Status != "processing" || len(i.Derivatives) != 0 {
		t.Fatalf("want nothing of a refused commit: %+v", i)
	}
	fails = false
	r.k.Clock.Advance(time.Minute)
	r.k.RunJobs()
	if i := r.get("ada", i.ID); i.Status != "ready" || len(i.Derivatives) != 2 {
		t.Errorf("want the item ready at the second try: %+v", i)
	}
}

func TestAHookFollowsADeletionOrRefusesIt(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		kept, gone := r.process("ada", "a.png", pngOf(scene(64, 64, 1))), r.process("ada", "b.png", pngOf(scene(64, 64, 2)))
		ordered := errors.New("somebody has ordered a print of it")
		r.k.Hooks().MediaDeleted.In(func(_ context.Context, e hooks.MediaDeleted) error {
			if e.MediaID == kept.ID {
				return ordered
			}
			return nil
		})
		var told []hooks.MediaDeleted
		r.k.Hooks().MediaDeleted.After(func(_ context.Context, e hooks.MediaDeleted) { told = append(told, e) })
		ada := r.k.User("ada")
		r.k.User("bob").Do("DELETE", "/media/"+gone.ID, nil).Want(404, "media/not_found")
		ada.Do("DELETE", "/media/"+gone.ID, nil).Want(204, "")
		if err := r.k.Media().Delete(t.Context(), "ada", kept.ID); !errors.Is(err, ordered) {
			t.Errorf("got %v, want the error of the hook", err)
		}
		if want := []hooks.MediaDeleted{{OwnerID: "ada", MediaID: gone.ID}}; !slices.Equal(told, want) {
			t.Errorf("told of %+v, want %+v", told, want)
		}
		if i := r.get("ada", kept.ID); i.Status != "ready" || len(r.fetch(i.Original.URL)) == 0 {
			t.Errorf("the item whose deletion was refused: %+v", i)
		}
	})
}

func TestAFileThatKeepsFailingIsGivenUp(t *testing.T) {
	r := memory(t, media.Config{})
	r.k.Hooks().MediaReady.In(func(context.Context, hooks.MediaReady) error { return errors.New("never") })
	i := r.process("ada", "a.png", pngOf(scene(64, 64, 1)))
	for range 3 {
		r.k.Clock.Advance(time.Minute)
		r.k.RunJobs()
	}
	if i = r.get("ada", i.ID); i.Status != "failed" || i.Error.Code != "media/processing_failed" {
		t.Errorf("want the item given up after three tries: %+v", i)
	}
}

func TestASlowRunKeepsTheFile(t *testing.T) {
	for slow, status := range map[time.Duration]string{2 * time.Minute: "ready", time.Hour: "failed"} {
		var r *rig
		r = newRig(t, databasetest.Memory(t), media.Config{Analyzer: analyzer(func() (media.Analysis, error) {
			r.k.Clock.Advance(slow)
			return media.Analysis{}, nil
		})}, storage.Config{PendingTTL: time.Minute})
		data := jpegOf(scene(300, 200, 3), 90)
		i := r.process("ada", "a.jpg", data)
		for range 3 {
			r.k.Clock.Advance(time.Minute)
			r.k.RunJobs()
		}
		i = r.get("ada", i.ID)
		if i.Status != status || i.Error != nil && i.Error.Code != "media/processing_failed" || r.used("ada") < int64(len(data)) {
			t.Errorf("a run of %s: want the item %s and its file kept: %s, %d bytes", slow, status, asJSON(t, i), r.used("ada"))
		}
	}
}

func TestExportAndErase(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		i := r.process("ada", "a.png", pngOf(scene(64, 64, 1)))
		kept := r.process("bob", "b.png", pngOf(scene(64, 64, 1)))
		c := r.k.Media().Capability()
		var records []string
		if err := c.Export(t.Context(), capability.Person{ID: "ada"}, func(kind string, record any) error {
			records = append(records, kind+" "+asJSON(t, record))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(records) != 1 || !has(records[0], i.ID) || !has(records[0], "media_item") {
			t.Errorf("want the one item of ada: %v", records)
		}
		for n, want := range []int64{1, 0} {
			e, err := c.Erase(t.Context(), capability.Person{ID: "ada"})
			if err != nil || e.Removed != want {
				t.Errorf("erasure %d removed %d, %v, want %d", n, e.Removed, err, want)
			}
		}
		if r.used("ada") != 0 || r.get("bob", kept.ID).Status != "ready" {
			t.Error("want the bytes of ada gone and those of bob there")
		}
	})
}

func TestAUserErasedWhileAPictureIsProcessedIsGone(t *testing.T) {
	const heic = "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + "\x00\x00\x00\x30meta\x00\x00\x00\x00" +
		"\x00\x00\x00\x24iprp\x00\x00\x00\x1cipco\x00\x00\x00\x14ispe\x00\x00\x00\x00\x00\x00\x01\x2c\x00\x00\x00\xc8"
	var r *rig
	r = memory(t, media.Config{Decoders: map[string]media.Decoder{"image/heic": func(io.Reader) (image.Image, error) {
		for _, c := range []capability.Capability{r.k.Media().Capability(), r.k.Storage().Capability()} {
			if _, err := c.Erase(t.Context(), capability.Person{ID: "ada"}); err != nil {
				t.Error(err)
			}
		}
		return scene(300, 200, 3), nil
	}}})
	c := r.upload("ada", "a.heic", []byte(heic))
	r.finalize("ada", c.Item.ID, 202, "")
	r.k.RunJobs()
	for _, table := range []string{"media_item", "storage_object", "storage_usage"} {
		var n int
		if err := r.k.Database().QueryRow(t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s has %d rows: %v", table, n, err)
		}
	}
}

func TestAnItemWhoseUploadWasGivenUpIsRemoved(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		c := r.create("ada", "a.png", []byte("never sent"))
		r.k.Clock.Advance(49 * time.Hour)
		r.k.RunJobs()
		r.k.Clock.Advance(time.Hour)
		r.k.RunJobs()
		r.k.User("ada").Get("/media/"+c.Item.ID).Want(404, "media/not_found")
	})
}

func TestAnItemWhoseUploadHasLapsedIsDeleted(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		c := r.create("ada", "a.png", []byte("never sent"))
		r.create("bob", "b.png", []byte("never sent"))
		r.k.Clock.Advance(49 * time.Hour)
		r.k.User("ada").Do("DELETE", "/media/"+c.Item.ID, nil).Want(204, "")
		if e, err := r.k.Media().Capability().Erase(t.Context(), capability.Person{ID: "bob"}); err != nil || e.Removed != 1 {
			t.Errorf("erased %d items: %v, want 1", e.Removed, err)
		}
	})
}

func TestNobodyOutsideStartsTheJob(t *testing.T) {
	r := memory(t, media.Config{})
	for _, b := range r.k.Media().Capability().Jobs {
		if b.Dispatch.Allowed() {
			t.Errorf("%s can be dispatched from outside", b.Name)
		}
	}
}
