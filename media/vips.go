package media

import (
	"cmp"
	"context"
	"errors"
	"image"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kitbackend/kit/media/internal/picture"
	"github.com/kitbackend/kit/media/internal/program"
)

// viaVips is shrinkByVips, or the decoder in Go for a picture that vips cannot read: only the
// decoder in Go determines whether a file is damaged.
func (m *Media) viaVips(ctx context.Context, contentType string, header picture.Header, data []byte) (image.Image, int, error) {
	img, err := m.shrinkByVips(ctx, header, data)
	switch {
	case !errors.Is(err, program.ErrFailed):
		return img, 1, err
	case !picture.Decodes(contentType):
		return nil, 0, ErrProcessingFailed.Because(err)
	}
	m.log.LogAttrs(ctx, slog.LevelWarn, "media: vips did not read a picture", slog.Any("error", err))
	img, err = picture.Decode(ctx, contentType, data)
	return img, 0, err
}

// shrinkByVips runs vips to make a picture upright and as small as the derivatives allow.
func (m *Media) shrinkByVips(ctx context.Context, header picture.Header, data []byte) (image.Image, error) {
	dir, err := os.MkdirTemp("", "kit-picture-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	in, small := filepath.Join(dir, "in"), filepath.Join(dir, "out.png")
	if err := os.WriteFile(in, data, 0o600); err != nil {
		return nil, err
	}
	side := strconv.Itoa(cmp.Or(picture.Enough(header.Width, header.Height, targets(m.cfg.Derivatives)), 1))
	_, err = program.Run(ctx, dir, program.Limits{Time: m.cfg.DecodeTimeout, Memory: programMemory, File: m.cfg.MaxBytes}, m.cfg.Vips,
		"thumbnail", in, small+"[compression=1,strip]", side, "--height", side, "--size", "down", "--fail-on", "truncated")
	if err != nil {
		return nil, err
	}
	return readPicture(ctx, "image/png", small)
}
