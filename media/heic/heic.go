// Package heic decodes the HEIC pictures of phones, for media.Config.Decoders:
//
//	media.Config{Decoders: map[string]media.Decoder{"image/heic": heic.Decode}}
//
// It is a module of its own because of its dependencies: libheif and libde265 as WebAssembly, which
// run without cgo inside the memory of WebAssembly. If libheif is installed as a shared library,
// that one is loaded instead; the build tag nodynamic disables this.
package heic

import (
	"fmt"
	"image"
	"io"

	"github.com/gen2brain/heic"
)

// Decode reads one picture, upright.
func Decode(r io.Reader) (image.Image, error) {
	img, err := heic.Decode(r)
	if err != nil {
		return nil, fmt.Errorf("heic: %w", err)
	}
	return img, nil
}
