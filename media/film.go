package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/media/internal/mp4"
	"github.com/kitbackend/kit/media/internal/picture"
	"github.com/kitbackend/kit/media/internal/program"
	"github.com/kitbackend/kit/storage"
)

// Bounds of the programs, and how videos are processed.
const (
	programMemory = 4 << 30 // address space, most of which is never used
	probeTime     = time.Minute
	// turn is how long a job waits before it checks again whether the other video is done.
	turn = 10 * time.Second
	// longSide bounds the sides of an MP4, in pixels.
	longSide = 1920
	// moving is ffmpeg's specifier of the first video stream that is not a cover picture.
	moving = "0:V:0"
)

// errBusy reports that another video is being processed.
var errBusy = errors.New("media: another film is worked on")

// posterSize is the size of the poster of a video.
var posterSize = Size{Name: poster, Width: 1280, Height: 1280, Quality: 80}

// demuxers are the ffmpeg demuxers by media type: ffmpeg must not choose another one by the bytes.
var demuxers = map[string]string{"video/mp4": "mov", "video/quicktime": "mov", "video/webm": "matroska"}

// makeFilm stages the pictures of a video, and an MP4 unless it is one.
func (m *Media) makeFilm(ctx context.Context, out *made) error {
	demuxer := demuxers[out.ContentType]
	if demuxer == "" {
		return m.checksum(ctx, out)
	}
	if !m.film.TryAcquire(1) {
		return errBusy
	}
	defer m.film.Release(1)
	dir, err := os.MkdirTemp("", "kit-film-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f := film{m: m, out: out, dir: dir, demuxer: demuxer}
	sum, err := m.fetch(ctx, out.ObjectID, f.in())
	if err != nil {
		return err
	}
	out.summed(sum)
	if err := f.probe(ctx); err != nil {
		return filmRefusal(err)
	}
	if err := f.pictures(ctx); err != nil {
		return filmRefusal(err)
	}
	return filmRefusal(f.movie(ctx))
}

// filmRefusal returns media/processing_failed for a failed program: either the file or the program
// may be broken, so the file is kept, and the item can be finalized again.
func filmRefusal(err error) error {
	if errors.Is(err, program.ErrFailed) {
		return ErrProcessingFailed.Because(err)
	}
	return err
}

// fetch copies an object to a file and returns its checksum.
func (m *Media) fetch(ctx context.Context, object, to string) (sum string, err error) {
	content, err := m.space.Open(ctx, storage.ByID(object))
	if err != nil {
		return "", err
	}
	defer content.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.Copy(f, io.TeeReader(content, hash))
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, f.Close())
}

// film is a video in a directory of its own.
type film struct {
	m       *Media
	out     *made
	dir     string
	demuxer string

	duration     time.Duration
	video, audio stream
}

func (f *film) in() string { return filepath.Join(f.dir, "in") }

// source returns the ffmpeg arguments of the input: the demuxer of the detected type, and no access
// to anything that the file refers to.
func (f *film) source() []string {
	return []string{"-protocol_whitelist", "file", "-f", f.demuxer, "-i", f.in()}
}

func (f *film) ffmpeg(ctx context.Context, limit time.Duration, before []string, after ...string) error {
	args := append([]string{"-nostdin", "-v", "error", "-threads", "1"}, before...)
	args = append(append(args, f.source()...), after...)
	_, err := program.Run(ctx, f.dir, program.Limits{Time: limit, Memory: programMemory, File: f.m.cfg.MaxBytes}, f.m.cfg.FFmpeg, args...)
	return err
}

// stream is ffprobe's description of a stream.
type stream struct {
	Kind    string `json:"codec_type"`
	Codec   string `json:"codec_name"`
	Pixels  string `json:"pix_fmt"`
	Width   int    `json:"width"`
	Height  int    `json:"height"`
	Rate    string `json:"avg_frame_rate"`
	Details []struct {
		Rotation float64 `json:"rotation"`
	} `json:"side_data_list"`
	Disposition struct {
		Cover int `json:"attached_pic"`
	} `json:"disposition"`
}

func (s stream) turned() bool {
	for _, d := range s.Details {
		if d.Rotation == 90 || d.Rotation == -90 || d.Rotation == 270 || d.Rotation == -270 {
			return true
		}
	}
	return false
}

// probe runs ffprobe, and sets the facts of the video that are not known yet.
func (f *film) probe(ctx context.Context) error {
	prober, err := sibling(f.m.cfg.FFmpeg, "ffprobe")
	if err != nil {
		return err
	}
	text, err := program.Run(ctx, f.dir, program.Limits{Time: probeTime, Memory: programMemory, File: 1 << 20}, prober,
		append([]string{"-v", "error", "-show_entries", "format=duration:stream=codec_type,codec_name,pix_fmt,width,height,avg_frame_rate" +
			":stream_disposition=attached_pic:stream_side_data=rotation", "-of", "json"}, f.source()...)...)
	if err != nil {
		return err
	}
	var found struct {
		Streams []stream `json:"streams"`
		Format  struct {
			Duration string `json:"duration"`
		} `json:"format"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("%w: ffprobe: %w", program.ErrFailed, err)
	}
	for _, s := range slices.Backward(found.Streams) { // the first stream of each kind is kept
		switch {
		case s.Kind == "video" && s.Disposition.Cover == 0:
			f.video = s
		case s.Kind == "audio":
			f.audio = s
		}
	}
	seconds, _ := strconv.ParseFloat(found.Format.Duration, 64)
	f.duration = time.Duration(max(0, min(seconds, 1e6)) * float64(time.Second))
	if f.video.Kind == "" {
		return ErrCorrupt
	}
	if f.out.Codec == "" {
		f.describe()
	}
	if pixels := int64(f.video.Width) * int64(f.video.Height); pixels < 1 || f.video.Width > picture.MaxSide ||
		f.video.Height > picture.MaxSide || pixels > f.m.cfg.MaxPixels {
		return ErrTooManyPixels
	}
	return nil
}

// describe sets the facts of a video of a type that the kit does not parse itself.
func (f *film) describe() {
	out := f.out
	out.Width, out.Height, out.Codec, out.HasAudio = f.video.Width, f.video.Height, f.video.Codec, f.audio.Kind != ""
	if f.video.turned() {
		out.Width, out.Height = out.Height, out.Width
	}
	out.DurationMs = f.duration.Milliseconds()
	above, below, _ := strings.Cut(f.video.Rate, "/")
	n, _ := strconv.ParseFloat(above, 64)
	if d, _ := strconv.ParseFloat(below, 64); d > 0 {
		out.FrameRate = float64(int(n/d*1000+0.5)) / 1000
	}
}

// pictures stages the poster and the derivatives of a frame a tenth into the video, at most 5
// seconds.
func (f *film) pictures(ctx context.Context) error {
	at, file := min(f.duration/10, 5*time.Second), filepath.Join(f.dir, "poster.png")
	scale := fmt.Sprintf("scale=w='min(%d,iw)':h='min(%d,ih)':force_original_aspect_ratio=decrease", maxSide, maxSide)
	err := f.ffmpeg(ctx, f.m.cfg.DecodeTimeout, []string{"-ss", strconv.FormatFloat(at.Seconds(), 'f', 3, 64)},
		"-map", moving, "-frames:v", "1", "-vf", scale, "-c:v", "png", "-f", "image2", file)
	if err != nil {
		return err
	}
	release, err := f.m.weigh(ctx, 3*maxSide*maxSide)
	if err != nil {
		return err
	}
	defer release()
	img, err := readPicture(ctx, "image/png", file)
	if err != nil {
		return err
	}
	sizes := append([]Size{posterSize}, f.m.cfg.Derivatives...)
	base := picture.Base(img, 1, targets(sizes))
	if _, err := f.m.show(ctx, f.out, base); err != nil {
		return err
	}
	_, err = f.m.derive(ctx, f.out, base, sizes[:1])
	return err
}

// readPicture decodes a picture that a program has written.
func readPicture(ctx context.Context, contentType, file string) (image.Image, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: nothing was made: %w", program.ErrFailed, err)
	}
	if _, err := picture.Inspect(contentType, data, (maxSide+1)*(maxSide+1)); err != nil {
		return nil, err
	}
	return picture.Decode(ctx, contentType, data)
}

// movie stages an MP4 of a video that is not an MP4 which plays while it loads. Streams of H.264
// and AAC are copied.
func (f *film) movie(ctx context.Context) error {
	plays := f.video.Codec == "h264" && f.video.Pixels == "yuv420p" && max(f.video.Width, f.video.Height) <= longSide
	sounds := f.audio.Kind == "" || f.audio.Codec == "aac"
	if f.duration > f.m.cfg.MaxFilm || plays && sounds && f.out.ContentType == "video/mp4" && f.startsFast() {
		return nil
	}
	video := []string{"-c:v", "copy"}
	if !plays {
		scale := fmt.Sprintf("scale=w='min(%d,iw)':h='min(%d,ih)':force_original_aspect_ratio=decrease:force_divisible_by=2", longSide, longSide)
		video = []string{"-c:v", "libx264", "-preset", "veryfast", "-crf", "23", "-pix_fmt", "yuv420p", "-vf", scale}
	}
	audio := []string{"-c:a", "copy"}
	if !sounds {
		audio = []string{"-c:a", "aac", "-b:a", "128k", "-ac", "2"}
	}
	file := filepath.Join(f.dir, "out.mp4")
	args := slices.Concat([]string{"-map", moving, "-map", "0:a:0?"}, video, audio,
		[]string{"-threads", "1", "-map_metadata", "-1", "-map_chapters", "-1", "-movflags", "+faststart", "-f", "mp4", file})
	if err := f.ffmpeg(ctx, f.m.cfg.FilmTimeout, nil, args...); err != nil {
		return err
	}
	return f.stageMovie(ctx, file)
}

func (f *film) stageMovie(ctx context.Context, file string) error {
	made, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%w: nothing was made: %w", program.ErrFailed, err)
	}
	defer made.Close()
	stat, err := made.Stat()
	if err != nil {
		return err
	}
	info, err := mp4.Read(sectionOf(made), stat.Size())
	if err != nil {
		return fmt.Errorf("%w: the film is not whole: %w", program.ErrFailed, err)
	}
	o, err := f.m.stageFrom(ctx, f.out, "derivatives/"+movie, "video/mp4", made, stat.Size())
	if err != nil {
		return err
	}
	f.out.derivatives = append(f.out.derivatives, Derivative{Name: movie, ContentType: "video/mp4", Width: info.Width, Height: info.Height,
		Size: o.Size, objectID: o.ID})
	return nil
}

// startsFast reports whether the movie box of an MP4 precedes its contents.
func (f *film) startsFast() bool {
	in, err := os.Open(f.in())
	if err != nil {
		return false
	}
	defer in.Close()
	stat, err := in.Stat()
	return err == nil && mp4.StartsFast(sectionOf(in), stat.Size())
}

func sectionOf(r io.ReaderAt) mp4.Source {
	return func(offset, length int64) ([]byte, error) {
		data := make([]byte, length)
		_, err := io.ReadFull(io.NewSectionReader(r, offset, length), data)
		return data, err
	}
}

// sibling returns the path of a program in the directory of another.
func sibling(program, name string) (string, error) {
	at, err := exec.LookPath(program)
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(at), name), nil
}
