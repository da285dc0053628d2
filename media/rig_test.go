package media_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"math/bits"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// rig is a kit with media behind a real server, since uploads use signed URLs.
type rig struct {
	t testing.TB
	k *kittest.Kit
}

func rigs(t *testing.T, cfg media.Config, fn func(t *testing.T, r *rig)) {
	t.Helper()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { fn(t, newRig(t, db, cfg, storage.Config{})) })
}

func memory(t *testing.T, cfg media.Config) *rig {
	t.Helper()
	return newRig(t, databasetest.Memory(t), cfg, storage.Config{})
}

func newRig(t testing.TB, db *database.DB, cfg media.Config, files storage.Config) *rig {
	t.Helper()
	files.Bucket = cmp.Or[bucket.Bucket](files.Bucket, file.New(t.TempDir()))
	r := &rig{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.k.ServeHTTP(w, q) }))
	t.Cleanup(server.Close)
	r.k = kittest.New(t, kit.WithDatabase(db), kit.WithBaseURL(server.URL), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}),
		kit.WithStorage(files), kit.WithMedia(cfg))
	return r
}

// rigOn returns a rig on the files of another one.
func rigOn(t testing.TB, db *database.DB, dir string, cfg media.Config) *rig {
	t.Helper()
	return newRig(t, db, cfg, storage.Config{Bucket: file.New(dir)})
}

// composed composes a kit with a configuration.
func composed(t testing.TB, cfg media.Config) (*kittest.Kit, error) {
	t.Helper()
	return kittest.Compose(t, kit.WithAuth(auth.Config{}), kit.WithStorage(storage.Config{}), kit.WithMedia(cfg))
}

// distance counts the bits in which two hashes differ.
func distance(t testing.TB, a, b string) int {
	t.Helper()
	x, err := strconv.ParseUint(a, 16, 64)
	y, err2 := strconv.ParseUint(b, 16, 64)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return bits.OnesCount64(x ^ y)
}

// item is an item as clients see it.
type item struct {
	ID, Kind, Status, Filename, ContentType, BlurHash, Codec, ObjectID string
	SHA256, SourceSHA256, PHash, TakenAt, ReadyAt                      *string
	Width, Height, Orientation                                         int
	Size, DurationMs                                                   int64
	FrameRate                                                          float64
	HasAudio                                                           bool
	Location                                                           *media.Location
	Original                                                           *struct{ URL string }
	Derivatives                                                        []struct {
		Name, ContentType, URL string
		Width, Height          int
		Size                   int64
	}
	Error *struct{ Code, Message string }
	AI    *media.Analysis
}

type created struct {
	Item   item
	Upload *struct {
		Method, URL string
		Headers     map[string]string
	}
	DuplicateOf *string
}

type body map[string]any

// create creates an item for a file, with more fields in pairs.
func (r *rig) create(user, name string, data []byte, more ...any) (c created) {
	r.t.Helper()
	b := body{"filename": name, "size": len(data)}
	for i := 0; i < len(more); i += 2 {
		b[more[i].(string)] = more[i+1]
	}
	r.k.User(user).Post("/media", b).Want(201, "").JSON(&c)
	return c
}

// upload creates an item and sends its bytes.
func (r *rig) upload(user, name string, data []byte, more ...any) created {
	r.t.Helper()
	c := r.create(user, name, data, more...)
	if c.Upload == nil {
		r.t.Fatalf("%s: no upload, a duplicate of %v", name, *c.DuplicateOf)
	}
	r.send(c, data)
	return c
}

func (r *rig) send(c created, data []byte) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(context.Background(), http.MethodPut, c.Upload.URL, bytes.NewReader(data))
	if err != nil {
		r.t.Fatal(err)
	}
	for name, value := range c.Upload.Headers {
		q.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		r.t.Fatalf("PUT: %d %s", response.StatusCode, text)
	}
}

// finalize expects success, or the status and code of a refusal.
func (r *rig) finalize(user, id string, status int, code string) {
	r.t.Helper()
	r.k.User(user).Post("/media/"+id+"/finalize", body{}).Want(status, code)
}

// process uploads a file, runs the jobs and returns the item.
func (r *rig) process(user, name string, data []byte, more ...any) item {
	r.t.Helper()
	c := r.upload(user, name, data, more...)
	r.finalize(user, c.Item.ID, 202, "")
	r.k.RunJobs()
	return r.get(user, c.Item.ID)
}

func (r *rig) get(user, id string) item {
	r.t.Helper()
	var a struct{ Item item }
	r.k.User(user).Get("/media/"+id).Want(200, "").JSON(&a)
	return a.Item
}

// fetch reads a signed URL.
func (r *rig) fetch(url string) []byte {
	r.t.Helper()
	response, err := http.Get(url) //nolint:gosec,noctx // an address of the test's own server
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		r.t.Fatalf("GET %s: %d %v", url, response.StatusCode, err)
	}
	return data
}

func (r *rig) used(user string) int64 {
	r.t.Helper()
	u, err := r.k.Storage().Usage(context.Background(), user)
	if err != nil {
		r.t.Fatal(err)
	}
	return u.Used + u.Reserved
}

// scene draws a picture with features; different seeds look different. Its top left corner is red.
func scene(width, height int, seed float64) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			u, v := float64(x)/float64(width), float64(y)/float64(height)
			wave := func(a, b float64) uint8 {
				return uint8(127 + 60*math.Sin(a*u*seed+b*v) + 60*math.Cos(b*u-a*v*seed))
			}
			c := color.RGBA{wave(5, 3), wave(2, 7), wave(9, 4), 255}
			if u < 0.25 && v < 0.25 {
				c = color.RGBA{255, 0, 0, 255}
			}
			img.SetRGBA(x, y, c)
		}
	}
	return img
}

func jpegOf(img image.Image, quality int) []byte {
	var buf bytes.Buffer
	if err := jpeg.Encode(&buf, img, &jpeg.Options{Quality: quality}); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func pngOf(img image.Image) []byte {
	var buf bytes.Buffer
	if err := png.Encode(&buf, img); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// withExif inserts an EXIF block with an orientation, a time and a location into a JPEG.
func withExif(data []byte, orientation int) []byte {
	var b []byte
	u16 := func(values ...int) {
		for _, v := range values {
			b = binary.BigEndian.AppendUint16(b, uint16(v))
		}
	}
	u32 := func(values ...int) {
		for _, v := range values {
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		}
	}
	b = append(b, "MM\x00*"...)
	u32(8)
	u16(3) // first directory: 8 to 50
	u16(0x0112, 3)
	u32(1)
	u16(orientation, 0)
	u16(0x8769, 4)
	u32(1, 50)
	u16(0x8825, 4)
	u32(1, 88)
	u32(0)
	u16(1, 0x9003, 2) // times: 50 to 68, then 20 bytes of text
	u32(20, 68, 0)
	b = append(b, "2024:05:06 07:08:09\x00"...)
	u16(4) // place: 88 to 142, then two angles
	u16(1, 2)
	u32(2)
	b = append(b, "N\x00\x00\x00"...)
	u16(2, 5)
	u32(3, 142)
	u16(3, 2)
	u32(2)
	b = append(b, "W\x00\x00\x00"...)
	u16(4, 5)
	u32(3, 166, 0)
	u32(48, 1, 30, 1, 36, 1)
	u32(11, 1, 15, 1, 0, 1)
	segment := append([]byte("Exif\x00\x00"), b...)
	out := []byte{0xff, 0xd8, 0xff, 0xe1}
	out = binary.BigEndian.AppendUint16(out, uint16(len(segment)+2))
	return append(append(out, segment...), data[2:]...)
}

// film returns an MP4 file of an audio track and, with pictures, a rotated video track, without
// their samples.
func film(pictures bool) []byte {
	box := func(name string, body ...[]byte) []byte {
		all := bytes.Join(body, nil)
		out := binary.BigEndian.AppendUint32(nil, uint32(len(all)+8))
		return append(append(out, name...), all...)
	}
	words := func(values ...uint32) (out []byte) {
		for _, v := range values {
			out = binary.BigEndian.AppendUint32(out, v)
		}
		return out
	}
	track := func(kind, codec string, scale, duration, samples, width, height uint32) []byte {
		head := words(0, 0, 0, 1, 0, duration, 0, 0, 0, 0, 0, 0x10000, 0, 0xffff0000, 0, 0, 0, 0, 0x40000000, width<<16, height<<16)
		return box("trak", box("tkhd", head), box("mdia",
			box("mdhd", words(0, 0, 0, scale, duration, 0)),
			box("hdlr", words(0, 0), []byte(kind), words(0, 0, 0)),
			box("minf", box("stbl",
				box("stsd", words(0, 1, 16), []byte(codec), words(0, 0)),
				box("stts", words(0, 1, samples, duration/max(samples, 1)))))))
	}
	parts := [][]byte{box("mvhd", words(0, 0, 0, 1000, 2500), make([]byte, 80))}
	if pictures {
		parts = append(parts, track("vide", "avc1", 30000, 75000, 75, 1920, 1080))
	}
	parts = append(parts, track("soun", "mp4a", 48000, 120000, 117, 0, 0))
	return bytes.Join([][]byte{box("ftyp", []byte("isom"), words(0)), box("mdat", make([]byte, 1000)), box("moov", parts...)}, nil)
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func has(text, part string) bool { return strings.Contains(text, part) }

func isRefusal(err error, want *capability.Error) bool { return errors.Is(err, want) }
