package media_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
)

// peak runs a function and returns the maximum growth of the heap in use, in bytes.
func peak(run func()) uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, most := m.HeapInuse, m.HeapInuse
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(5 * time.Millisecond); !stop.Load(); <-tick.C {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
		}
	}()
	run()
	stop.Store(true)
	<-done
	return most - before
}

func animation(frames int) []byte {
	g := gif.GIF{}
	for n := range frames {
		img := image.NewPaletted(image.Rect(0, 0, 40, 30), color.Palette{color.Black, color.White})
		img.Pix[n] = 1
		g.Image, g.Delay = append(g.Image, img), append(g.Delay, 1)
	}
	var buf bytes.Buffer
	if err := gif.EncodeAll(&buf, &g); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// deep returns a picture with 16 bits per sample.
func deep(width, height int) image.Image {
	img := image.NewNRGBA64(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			img.SetNRGBA64(x, y, color.NRGBA64{uint16(x * 65535 / width), uint16(y * 65535 / height), 30000, 65535})
		}
	}
	return img
}

// withLongHeader inserts more metadata before a JPEG's picture than Finalize reads at first, like
// an extended XMP.
func withLongHeader(data []byte) []byte {
	segment := append([]byte("\xff\xe1\xff\xffhttp://ns.adobe.com/xmp/extension/\x00"), make([]byte, 1<<16)...)[:1<<16+1]
	return slices.Concat(data[:2], bytes.Repeat(segment, 20), data[2:])
}

// withStrayByte inserts a byte that decoders skip after the first segment of a JPEG.
func withStrayByte(data []byte) []byte {
	return slices.Insert(bytes.Clone(data), 4+int(binary.BigEndian.Uint16(data[4:])), 0)
}

// TestEveryKindOfPictureBecomesOne makes derivatives of the formats that cameras and programs
// write. vips writes those that Go's library cannot write.
func TestEveryKindOfPictureBecomesOne(t *testing.T) {
	r := memory(t, media.Config{})
	corpus := map[string][]byte{"baseline.jpg": jpegOf(scene(300, 200, 1), 90), "true.png": pngOf(scene(300, 200, 1)),
		"stray.jpg": withStrayByte(jpegOf(scene(300, 200, 2), 90)), "long.jpg": withLongHeader(jpegOf(scene(300, 200, 3), 90)), "deep.png": pngOf(deep(300, 200)), "moving.gif": animation(50)}
	if vips := os.Getenv("KIT_TEST_VIPS"); vips != "" {
		source := filepath.Join(t.TempDir(), "a.png")
		if err := os.WriteFile(source, corpus["true.png"], 0o600); err != nil {
			t.Fatal(err)
		}
		for name, how := range map[string][]string{
			"progressive.jpg": {"copy", source, "a.jpg[interlace]"},
			"cmyk.jpg":        {"colourspace", source, "a.jpg", "cmyk"},
			"interlaced.png":  {"copy", source, "a.png[interlace]"},
			"lossy.webp":      {"copy", source, "a.webp"},
			"lossless.webp":   {"copy", source, "a.webp[lossless]"},
		} {
			corpus[name] = converted(t, vips, how)
		}
	}
	for name, data := range corpus {
		i := r.process("ada", "wrong.mp4", data, "onDuplicate", "allow") // the extension does not matter
		if i.Status != "ready" || i.Kind != "image" || len(i.Derivatives) != 2 || i.BlurHash == "" {
			t.Errorf("%s: %s", name, asJSON(t, i))
			continue
		}
		if want := [2]int{300, 200}; name != "moving.gif" && [2]int{i.Width, i.Height} != want {
			t.Errorf("%s is %d by %d", name, i.Width, i.Height)
		}
		for _, d := range i.Derivatives {
			if img, _, err := image.Decode(bytes.NewReader(r.fetch(d.URL))); err != nil || img.Bounds().Dx() != d.Width {
				t.Errorf("%s, %s: %v", name, d.Name, err)
			}
		}
	}
}

// converted runs vips with an output name that may include options.
func converted(t *testing.T, vips string, how []string) []byte {
	t.Helper()
	dir := t.TempDir()
	how[2] = filepath.Join(dir, how[2])
	return outputIn(t, dir, vips, how...)
}

// TestPicturesCutAnywhere truncates files at every kilobyte: none is accepted, except a GIF whose
// first picture is complete.
func TestPicturesCutAnywhere(t *testing.T) {
	r := memory(t, media.Config{})
	for name, whole := range map[string][]byte{"a.jpg": jpegOf(scene(160, 120, 3), 95), "a.png": pngOf(scene(80, 60, 3)), "a.gif": animation(200)} {
		for n := 1024; n < len(whole); n += 1024 {
			i := r.process("ada", name, whole[:n], "onDuplicate", "allow")
			if name == "a.gif" && i.Status == "ready" {
				continue
			}
			if i.Status != "failed" || i.Error.Code != "media/corrupt" {
				t.Errorf("%s, of %d bytes %d: %s %+v, want media/corrupt", name, len(whole), n, i.Status, i.Error)
			}
		}
	}
}

// TestMemoryIsBounded decodes the largest accepted picture, and a smaller one from a file that
// expands to a thousand times its size.
func TestMemoryIsBounded(t *testing.T) {
	r := memory(t, media.Config{})
	const megabyte = 1 << 20
	for name, c := range map[string]struct {
		img  image.Image
		most uint64
	}{
		"50 MP of gray":     {image.NewGray(image.Rect(0, 0, 8000, 6250)), 200 * megabyte},
		"a third too large": {image.NewGray(image.Rect(0, 0, 3830, 3830)), 80 * megabyte},
		"3 MP of 16 bits":   {image.NewNRGBA64(image.Rect(0, 0, 2000, 1500)), 100 * megabyte},
		"a line of 16384":   {image.NewGray(image.Rect(0, 0, 16384, 1)), 100 * megabyte},
		"a column of 16384": {image.NewGray(image.Rect(0, 0, 1, 16384)), 100 * megabyte},
	} {
		data := pngOf(c.img)
		var i item
		took := peak(func() { i = r.process("ada", "a.png", data, "onDuplicate", "allow") })
		t.Logf("%s: a file of %d KB took %d MB", name, len(data)>>10, took/megabyte)
		if testing.Short() {
			c.most = 2 * c.most // the short run is with the race detector, which allocates too
		}
		if i.Status != "ready" || len(i.Derivatives) != 2 || took > c.most {
			t.Errorf("%s took %d bytes, want at most %d: %s", name, took, c.most, asJSON(t, i))
		}
	}
	bomb := pngOf(image.NewGray(image.Rect(0, 0, 8001, 6250)))
	c := r.upload("ada", "bomb.png", bomb)
	if took := peak(func() { r.finalize("ada", c.Item.ID, 422, "media/too_many_pixels") }); took > 10*megabyte {
		t.Errorf("refusing one line above 50 MP took %d bytes", took)
	}
}

// TestTheStoryOnS3 processes a picture from upload to deletion with the bytes on S3.
func TestTheStoryOnS3(t *testing.T) {
	for name, db := range map[string]func(testing.TB) *database.DB{
		"sqlite":   func(t testing.TB) *database.DB { return databasetest.File(t) },
		"postgres": func(t testing.TB) *database.DB { return databasetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := buckettest.S3(t)
			r := newRig(t, db(t), media.Config{}, storage.Config{Bucket: b})
			i := r.process("ada", "a.jpg", withExif(jpegOf(scene(800, 600, 1), 90), 6))
			if i.Status != "ready" || i.Width != 600 || len(i.Derivatives) != 2 {
				t.Fatal(asJSON(t, i))
			}
			want := i.Size
			for _, d := range i.Derivatives {
				if len(r.fetch(d.URL)) != int(d.Size) {
					t.Errorf("%s has other bytes", d.Name)
				}
				want += d.Size
			}
			if used := r.used("ada"); used != want {
				t.Errorf("ada uses %d bytes, want %d", used, want)
			}
			r.k.User("ada").Do("DELETE", "/media/"+i.ID, nil).Want(204, "")
			if used := r.used("ada"); used != 0 {
				t.Errorf("ada uses %d bytes after the deletion", used)
			}
			left, err := b.List(t.Context(), "", 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range left {
				if o.Size > 0 { // an empty object keeps a signed URL from writing again
					t.Errorf("%s is left: %v", o.Key, fmt.Sprint(o))
				}
			}
		})
	}
}

func TestPutInProcess(t *testing.T) {
	rigs(t, media.Config{}, func(t *testing.T, r *rig) {
		data := jpegOf(scene(64, 64, 1), 80)
		put := func(n media.Upload, data []byte) (media.Item, error) {
			n.OwnerID, n.Filename, n.Size = "ada", "a.jpg", int64(len(data))
			return r.k.Media().Put(t.Context(), n, bytes.NewReader(data))
		}
		i, err := put(media.Upload{}, data)
		if err != nil || i.Status != media.StatusProcessing {
			t.Fatalf("%+v %v", i, err)
		}
		r.k.RunJobs()
		got := r.get("ada", i.ID)
		if got.Status != "ready" || len(got.Derivatives) != 2 {
			t.Errorf("%s", asJSON(t, got))
		}
		if same, err := put(media.Upload{SHA256: *got.SHA256}, data); err != nil || same.ID != i.ID {
			t.Errorf("want the item that has these bytes: %s %v", same.ID, err)
		}
		used := r.used("ada")
		if _, err := put(media.Upload{}, []byte("no picture")); !isRefusal(err, media.ErrUnsupportedType) {
			t.Errorf("%v, want media/unsupported_type", err)
		}
		if _, err := put(media.Upload{SHA256: "00"}, data); err == nil {
			t.Error("takes a checksum that is none")
		}
		if now := r.used("ada"); now != used {
			t.Errorf("ada uses %d bytes after refusals, want %d", now, used)
		}
	})
}
