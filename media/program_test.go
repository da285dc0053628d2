package media_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/media"
)

// tool returns the program that an environment variable names. It skips the test if the variable is
// not set.
func tool(t testing.TB, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skip(variable + " is not set")
	}
	return path
}

// output runs a program that writes to its last argument, a file name, and returns the file.
func output(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	return outputIn(t, dir, name, append(args[:len(args)-1:len(args)-1], filepath.Join(dir, args[len(args)-1]))...)
}

// outputIn runs a program that writes one file of a directory, and returns the file.
func outputIn(t testing.TB, dir, name string, args ...string) []byte {
	t.Helper()
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v %s", name, args, err, text)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, files[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// shot returns a video of one second of 160 by 120 with sound.
func shot(t testing.TB, ffmpeg string, args ...string) []byte {
	t.Helper()
	return output(t, ffmpeg, append([]string{"-v", "error", "-f", "lavfi", "-i", "testsrc=duration=1:size=160x120:rate=10",
		"-f", "lavfi", "-i", "sine=duration=1", "-pix_fmt", "yuv420p"}, args...)...)
}

// covered returns a video with a cover picture before its tracks.
func covered(t testing.TB, ffmpeg string) []byte {
	t.Helper()
	data := output(t, ffmpeg, "-v", "error", "-f", "lavfi", "-i", "testsrc=duration=1:size=160x120:rate=10", "-f", "lavfi", "-i", "color=red:size=64x64:rate=1:duration=1",
		"-map", "0", "-map", "1", "-c:v:0", "libx264", "-pix_fmt:v:0", "yuv420p", "-c:v:1", "mjpeg", "-disposition:v:1", "attached_pic", "a.mp4")
	const head = 8 // header of a box: its length and its name
	at := bytes.Index(data, []byte("moov")) - 4
	first := at + head + int(binary.BigEndian.Uint32(data[at+head:]))
	last := bytes.Index(data[at:], []byte("udta")) + at - 4
	end := last + int(binary.BigEndian.Uint32(data[last:]))
	return slices.Concat(data[:first], data[last:end], data[first:last], data[end:])
}

func names(i item) string {
	var list []string
	for _, d := range i.Derivatives {
		list = append(list, d.Name)
	}
	return strings.Join(list, " ")
}

func TestFilmsGetPicturesAndAnMP4(t *testing.T) {
	ffmpeg := tool(t, "KIT_TEST_FFMPEG")
	r := memory(t, media.Config{FFmpeg: ffmpeg, Derivatives: []media.Size{{Name: "thumb", Width: 80, Height: 80}}})
	const pictures = "thumb poster"
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"suits already":        {shot(t, ffmpeg, "-c:v", "libx264", "-c:a", "aac", "-movflags", "+faststart", "a.mp4"), pictures},
		"its facts at the end": {shot(t, ffmpeg, "-c:v", "libx264", "-c:a", "aac", "a.mp4"), "thumb mp4 poster"},
		"QuickTime":            {shot(t, ffmpeg, "-c:v", "libx264", "-c:a", "aac", "-movflags", "+faststart", "a.mov"), "thumb mp4 poster"},
		"other formats":        {shot(t, ffmpeg, "-c:v", "libvpx", "-c:a", "libvorbis", "a.webm"), "thumb mp4 poster"},
		"a cover":              {covered(t, ffmpeg), "thumb mp4 poster"},
		"other colours":        {shot(t, ffmpeg, "-pix_fmt", "yuv444p", "-c:v", "libx264", "-an", "-movflags", "+faststart", "a.mp4"), "thumb mp4 poster"},
	} {
		t.Run(name, func(t *testing.T) {
			i := r.process("ada", "film", c.data)
			if i.Status != "ready" || names(i) != c.want || i.BlurHash == "" || i.Width != 160 || i.Height != 120 || i.FrameRate != 10 ||
				i.DurationMs < 900 || i.DurationMs > 1100 {
				t.Fatalf("want %s: %s", c.want, asJSON(t, i))
			}
			for _, d := range i.Derivatives {
				data := r.fetch(d.URL)
				if d.Name != "mp4" {
					if img, err := jpeg.Decode(bytes.NewReader(data)); err != nil || img.Bounds().Dx() != d.Width || 3*d.Width != 4*d.Height {
						t.Errorf("%s: %d by %d, %v", d.Name, d.Width, d.Height, err)
					}
					continue
				}
				again := r.process("ada", "again.mp4", data)
				if names(again) != pictures || again.Codec != "avc1" || d.Width != 160 || again.Width != 160 {
					t.Errorf("want an MP4 that plays while it loads: %s", asJSON(t, again))
				}
			}
		})
	}
	whole := shot(t, ffmpeg, "-c:v", "libx264", "-movflags", "+faststart", "-an", "a.mp4")
	garbage := bytes.Clone(whole)
	at := bytes.Index(garbage, []byte("mdat")) + 4
	for i := range garbage[at:] {
		garbage[at+i] = byte(i * 31)
	}
	i := r.process("ada", "garbage.mp4", garbage)
	if i.Status != "failed" || i.Error.Code != "media/processing_failed" || i.Size != int64(len(garbage)) {
		t.Errorf("want a film that nothing reads kept and failed: %s", asJSON(t, i))
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "kit-film-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// fakeFFmpeg returns an ffmpeg that logs when two of it run concurrently, and fails.
func fakeFFmpeg(t *testing.T) (program, log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	script := fmt.Sprintf("#!/bin/sh\nmkdir %[1]s/lock || echo two at once >> %[1]s/log\nsleep 0.1\necho ran >> %[1]s/log\nrmdir %[1]s/lock\nexit 1\n", dir)
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "ffmpeg"), log
}

func TestOneFilmAtATime(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("has no shell")
	}
	program, log := fakeFFmpeg(t)
	r := memory(t, media.Config{FFmpeg: program})
	var films []created
	for range 3 {
		c := r.upload("ada", "a.mp4", film(true))
		r.finalize("ada", c.Item.ID, 202, "")
		films = append(films, c)
	}
	for range 4 { // an item that found another video in progress retries after ten seconds
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { r.k.RunJobs() })
		}
		wg.Wait()
		r.k.Clock.Advance(11e9)
	}
	text, err := os.ReadFile(log)
	if err != nil || strings.Contains(string(text), "two at once") || strings.Count(string(text), "ran") != 3 {
		t.Errorf("want three films, one after the other: %s %v", text, err)
	}
	for _, c := range films {
		if i := r.get("ada", c.Item.ID); i.Status != "failed" || i.Error.Code != "media/processing_failed" {
			t.Errorf("want a film that the program does not read failed: %+v", i)
		}
	}
}

func TestVipsMakesTheSamePictures(t *testing.T) {
	vips := tool(t, "KIT_TEST_VIPS")
	r := memory(t, media.Config{Vips: vips})
	for orientation := 1; orientation <= 8; orientation++ {
		data := withExif(jpegOf(scene(400, 200, 1), 95), orientation)
		i := r.process("ada", "a.jpg", data)
		if i.Status != "ready" || len(i.Derivatives) != 2 {
			t.Fatalf("%s", asJSON(t, i))
		}
		own := memory(t, media.Config{}).process("ada", "a.jpg", data)
		if i.Width != own.Width || i.Height != own.Height || i.Derivatives[0].Width != own.Derivatives[0].Width || i.Derivatives[0].Height != own.Derivatives[0].Height ||
			distance(t, *i.PHash, *own.PHash) > 4 {
			t.Errorf("orientation %d: %s and without vips %s", orientation, asJSON(t, i), asJSON(t, own))
		}
	}
	source := filepath.Join(t.TempDir(), "a.png")
	if err := os.WriteFile(source, pngOf(scene(300, 200, 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.heic", "a.avif"} {
		data := output(t, vips, "copy", source, name)
		if i := r.process("ada", name, data); i.Status != "ready" || len(i.Derivatives) != 2 || i.Width != 300 || i.Height != 200 || i.PHash == nil {
			t.Errorf("%s: %s", name, asJSON(t, i))
		}
		// Without a decoder it is stored and measured, and has no derivatives.
		if i := memory(t, media.Config{}).process("ada", name, data); i.Status != "ready" || len(i.Derivatives) != 0 || i.Width != 300 || i.SHA256 == nil {
			t.Errorf("%s without vips: %s", name, asJSON(t, i))
		}
		if i := r.process("ada", name, data[:len(data)*3/4]); i.Status != "failed" || i.Error.Code != "media/processing_failed" {
			t.Errorf("%s cut: %s", name, asJSON(t, i))
		}
	}
	whole := jpegOf(scene(400, 300, 3), 90)
	if i := r.process("ada", "cut.jpg", whole[:len(whole)/2]); i.Status != "failed" || i.Error.Code != "media/corrupt" {
		t.Errorf("half a picture: %s", asJSON(t, i))
	}
}

func TestDerivativesFollowTheConfiguration(t *testing.T) {
	db := databasetest.Memory(t)
	dir := t.TempDir()
	first := rigOn(t, db, dir, media.Config{Derivatives: []media.Size{{Name: "thumb", Width: 100, Height: 100}, {Name: "old", Width: 50, Height: 50}}})
	i := first.process("ada", "a.jpg", withExif(jpegOf(scene(400, 300, 1), 90), 6))
	sound := first.process("ada", "b.mp4", film(false), "kind", "audio")
	r := rigOn(t, db, dir, media.Config{Derivatives: []media.Size{{Name: "thumb", Width: 120, Height: 120, Cover: true}, {Name: "wide", Width: 200, Height: 200}}})
	if got := r.get("ada", i.ID); names(got) != "old thumb" {
		t.Fatalf("want what was made before: %s", names(got))
	}
	r.k.Clock.Advance(first.k.Clock.Now().Sub(r.k.Clock.Now()))
	r.k.Clock.Advance(21 * 60e9)
	r.k.RunJobs()
	r.k.RunJobs()
	got := r.get("ada", i.ID)
	if names(got) != "thumb wide" || got.Derivatives[0].Width != 120 || got.Derivatives[0].Height != 120 || got.Derivatives[1].Height != 200 {
		t.Errorf("want thumb 120 by 120 and wide: %s", asJSON(t, got))
	}
	if *got.SHA256 != *i.SHA256 || *got.SourceSHA256 != *i.SourceSHA256 || *got.ReadyAt != *i.ReadyAt || got.Width != 300 || got.Orientation != 6 {
		t.Errorf("want the item as it was: %s", asJSON(t, got))
	}
	want := got.Size + sound.Size
	for _, d := range got.Derivatives {
		if len(r.fetch(d.URL)) != int(d.Size) {
			t.Errorf("%s is not there", d.Name)
		}
		want += d.Size
	}
	if used := r.used("ada"); used != want {
		t.Errorf("ada uses %d bytes, want %d: what was made before is gone", used, want)
	}
	var stale int
	if err := db.QueryRow(t.Context(), `SELECT COUNT(DISTINCT recipe) FROM media_item`).Scan(&stale); err != nil || stale != 1 {
		t.Errorf("%d recipes are left, want one: %v", stale, err)
	}
}

func TestAnItemThatCannotBeMadeAgainKeepsWhatItHas(t *testing.T) {
	db, dir := databasetest.Memory(t), t.TempDir()
	first := rigOn(t, db, dir, media.Config{})
	i := first.process("ada", "a.jpg", jpegOf(scene(400, 300, 1), 90))
	r := rigOn(t, db, dir, media.Config{MaxPixels: 100, Derivatives: []media.Size{{Name: "other", Width: 10, Height: 10}}})
	r.k.Clock.Advance(first.k.Clock.Now().Sub(r.k.Clock.Now()))
	for range 3 {
		r.k.Clock.Advance(21 * 60e9)
		r.k.RunJobs()
	}
	if got := r.get("ada", i.ID); got.Status != "ready" || names(got) != "thumb preview" {
		t.Errorf("want the derivatives of before: %s", asJSON(t, got))
	}
}

func TestProgramsThatAreNotThereAreFaults(t *testing.T) {
	_, err := composed(t, media.Config{Vips: "/none/vips", FFmpeg: "/none/ffmpeg", Decoders: map[string]media.Decoder{"image/png": nil},
		Derivatives: []media.Size{{Name: "poster", Width: 1, Height: 1}}})
	for _, key := range []string{"vips", "ffmpeg", "decoders", "derivatives[0].name"} {
		if err == nil || !has(err.Error(), key) {
			t.Errorf("want a fault of %s: %v", key, err)
		}
	}
}
