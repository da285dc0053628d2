package media

import (
	"cmp"
	"fmt"
	"image"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/media/internal/picture"
)

// Config configures media. The zero value accepts images, videos and audio.
type Config struct {
	// Derivatives are the smaller pictures to make, at most 8; by default thumb, inside 320 by 320,
	// and preview, inside 1280 by 1280.
	Derivatives []Size
	// Kinds are the accepted kinds; by default image, video and audio.
	Kinds []Kind
	// MaxPixels bounds the pixels of a picture, by default 50 million.
	MaxPixels int64
	// MaxImageBytes bounds the file of a picture, by default 64 MiB.
	MaxImageBytes int64
	// MaxBytes bounds every file, by default 2 GiB.
	MaxBytes int64
	// Strip is what is removed from the originals of pictures, by default "gps". The pixels do not
	// change. Videos and audio are stored unchanged.
	Strip Strip
	// DecodeTimeout bounds decoding one picture, by default 30 seconds.
	DecodeTimeout time.Duration
	// Decoders decode more types of pictures, such as "image/heic": the module media/heic has a
	// decoder. They must bound their memory and time themselves.
	Decoders map[string]Decoder
	// Vips is the vips program of libvips 8.13 or later, as a path or a name in PATH: it shrinks
	// pictures instead of the decoders in Go, and HEIC and AVIF too if it was built with them. ""
	// disables it.
	Vips string
	// FFmpeg is the ffmpeg program, with ffprobe in the same directory. From a video it makes
	// pictures, "poster" and the Derivatives, and "mp4", an MP4 of H.264 and AAC that plays while
	// it loads, unless the video is one. A process works on one video at a time. "" disables it:
	// videos are only stored.
	FFmpeg string
	// FilmTimeout bounds the work on one video, by default 30 minutes, at most a day.
	FilmTimeout time.Duration
	// MaxFilm is the duration above which no MP4 is made, by default one hour.
	MaxFilm time.Duration
	// Analyzer describes pictures; nil disables it.
	Analyzer Analyzer
	// BlockFlagged fails items that the analyzer flags, with
	// media/moderation_rejected, and removes their bytes.
	BlockFlagged bool
	// Database is the name of the binding of the rows, which must be that of storage; by default
	// "DB".
	Database string
	// BasePath is the mount prefix, by default "/media".
	BasePath string
}

// Strip is the amount of metadata that is removed from originals.
type Strip string

// The amounts of metadata.
const (
	StripGPS  Strip = Strip(picture.StripGPS)  // where the picture was taken
	StripAll  Strip = Strip(picture.StripAll)  // everything but orientation and color profile
	StripNone Strip = Strip(picture.StripNone) // nothing
)

// Size describes one derivative: a JPEG, or a PNG if the picture is not opaque. It is never larger
// than the original.
type Size struct {
	// Name is 1 to 32 lower case letters, digits, _ and -.
	Name string `json:"name"`
	// Width and Height are 1 to 2,500 pixels.
	Width  int `json:"width"`
	Height int `json:"height"`
	// Cover fills the size and crops the rest; without it the whole picture fits inside.
	Cover bool `json:"cover"`
	// Quality is the JPEG quality, 1 to 100, by default 80.
	Quality int `json:"quality"`
}

// Decoder decodes a type of pictures that the kit does not support. It returns the picture upright.
type Decoder func(r io.Reader) (image.Image, error)

const (
	maxSizes = 8
	maxSide  = 2500
	// The names of the derivatives of videos.
	poster = "poster"
	movie  = "mp4"
)

var nameForm = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

func (c Config) withDefaults() Config {
	c.Derivatives = slices.Clone(c.Derivatives)
	if c.Derivatives == nil {
		c.Derivatives = []Size{{Name: "thumb", Width: 320, Height: 320}, {Name: "preview", Width: 1280, Height: 1280}}
	}
	for i := range c.Derivatives {
		c.Derivatives[i].Quality = cmp.Or(c.Derivatives[i].Quality, 80)
	}
	if len(c.Kinds) == 0 {
		c.Kinds = []Kind{KindImage, KindVideo, KindAudio}
	}
	c.MaxPixels = cmp.Or(c.MaxPixels, 50_000_000)
	c.MaxImageBytes = cmp.Or(c.MaxImageBytes, 64<<20)
	c.MaxBytes = cmp.Or(c.MaxBytes, 2<<30)
	c.Strip = cmp.Or(c.Strip, StripGPS)
	c.DecodeTimeout = cmp.Or(c.DecodeTimeout, 30*time.Second)
	c.FilmTimeout = cmp.Or(c.FilmTimeout, 30*time.Minute)
	c.MaxFilm = cmp.Or(c.MaxFilm, time.Hour)
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/media")
	return c
}

func (c Config) validate(faults *capability.Faults) {
	outside := func(key string, value, least, most int64) {
		if value < least || value > most {
			faults.Add(key, value, "is out of range", fmt.Sprintf("use %d to %d", least, most))
		}
	}
	outside("maxPixels", c.MaxPixels, 1, picture.MaxSide*picture.MaxSide)
	outside("maxImageBytes", c.MaxImageBytes, 1, 1<<30)
	outside("maxBytes", c.MaxBytes, 1, 1<<40)
	outside("decodeTimeoutMs", c.DecodeTimeout.Milliseconds(), 1, time.Minute.Milliseconds())
	outside("filmTimeoutMs", c.FilmTimeout.Milliseconds(), 1000, (24 * time.Hour).Milliseconds())
	outside("maxFilmMs", c.MaxFilm.Milliseconds(), 1, (24 * time.Hour).Milliseconds())
	c.validatePrograms(faults)
	if !slices.Contains([]Strip{StripGPS, StripAll, StripNone}, c.Strip) {
		faults.Add("strip", c.Strip, "is not an amount of metadata", "use gps, all or none")
	}
	if c.BlockFlagged && c.Analyzer == nil {
		faults.Add("blockFlagged", true, "is set without an analyzer", "give an analyzer, or leave it out")
	}
	for i, kind := range c.Kinds {
		if !kind.known() {
			faults.Add(fmt.Sprintf("kinds[%d]", i), kind, "is not a kind", "use image, video, audio or other")
		}
	}
	if len(c.Derivatives) > maxSizes {
		faults.Add("derivatives", len(c.Derivatives), "is too long", "make at most 8")
	}
	for i, d := range c.Derivatives {
		at := func(field string) string { return fmt.Sprintf("derivatives[%d].%s", i, field) }
		if !nameForm.MatchString(d.Name) {
			faults.Add(at("name"), d.Name, "is not a name", "use 1 to 32 lower case letters, digits, _ and -")
		}
		if d.Name == poster || d.Name == movie {
			faults.Add(at("name"), d.Name, "is what films have", "choose another name")
		}
		if slices.ContainsFunc(c.Derivatives[:i], func(other Size) bool { return other.Name == d.Name }) {
			faults.Add(at("name"), d.Name, "is declared twice", "declare each derivative once")
		}
		outside(at("width"), int64(d.Width), 1, maxSide)
		outside(at("height"), int64(d.Height), 1, maxSide)
		outside(at("quality"), int64(d.Quality), 1, 100)
	}
}

func (c Config) validatePrograms(faults *capability.Faults) {
	for key, name := range map[string]string{"vips": c.Vips, "ffmpeg": c.FFmpeg} {
		if name == "" {
			continue
		}
		if _, err := exec.LookPath(name); err != nil {
			faults.Add(key, name, "is no program here", "install it, name its path, or leave it out")
		}
	}
	for kind, decoder := range c.Decoders {
		if decoder == nil || kindOf(kind) != KindImage || picture.Decodes(kind) {
			faults.Add("decoders", kind, "has no use", "give a decoder to a type of pictures that the kit does not decode")
		}
	}
}

func (c Config) keys() []capability.ConfigKey {
	return []capability.ConfigKey{
		{Key: "derivatives", Value: c.Derivatives, Summary: "The smaller pictures that are made."},
		{Key: "kinds", Value: c.Kinds, Summary: "What is taken."},
		{Key: "maxPixels", Value: c.MaxPixels, Summary: "Pixels a picture may have."},
		{Key: "maxImageBytes", Value: c.MaxImageBytes, Summary: "Bytes the file of a picture may have."},
		{Key: "maxBytes", Value: c.MaxBytes, Summary: "Bytes any file may have."},
		{Key: "strip", Value: string(c.Strip), Choices: []string{string(StripGPS), string(StripAll), string(StripNone)},
			Summary: "What is removed from the originals of pictures."},
		{Key: "decodeTimeoutMs", Value: c.DecodeTimeout.Milliseconds(), Summary: "How long decoding a picture may take."},
		{Key: "decoders", Value: slices.Sorted(maps.Keys(c.Decoders)), Summary: "The types of pictures that are decoded besides those the kit knows."},
		{Key: "vips", Value: c.Vips, Summary: "The program that shrinks pictures; empty means none."},
		{Key: "ffmpeg", Value: c.FFmpeg, Summary: "The program that makes pictures and MP4s of films; empty means none."},
		{Key: "filmTimeoutMs", Value: c.FilmTimeout.Milliseconds(), Summary: "How long the work on a film may take."},
		{Key: "maxFilmMs", Value: c.MaxFilm.Milliseconds(), Summary: "The duration above which no MP4 is made of a film."},
		{Key: "analyzer", Value: c.Analyzer != nil, Summary: "Whether pictures are described."},
		{Key: "blockFlagged", Value: c.BlockFlagged, Summary: "Whether flagged pictures are refused."},
		{Key: "database", Value: c.Database, Summary: "The database binding of the rows."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}
