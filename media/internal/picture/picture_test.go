package picture

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// drawn returns a picture that depends on its seed: gradients, and shapes with edges of all sizes.
func drawn(width, height int, seed uint64) *image.RGBA {
	random := rand.New(rand.NewPCG(seed, 1))
	var waves [6][4]float64
	for i := range waves {
		for j := range waves[i] {
			waves[i][j] = random.Float64()*8 - 4
		}
	}
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			u, v, sum := float64(x)/float64(width), float64(y)/float64(height), 0.0
			for _, w := range waves {
				sum += w[2] * math.Sin(math.Pi*(w[0]*u+w[1]*v)+w[3])
			}
			shade := uint8(max(0, min(255, 128+sum*16)))
			img.SetRGBA(x, y, color.RGBA{shade, 255 - shade, shade / 2, 255})
		}
	}
	for n := 1; n <= 24; n++ {
		reach := 1.2 / math.Sqrt(float64(n))
		at := func(side int) (int, int) {
			from := (random.Float64()*1.4 - 0.4) * float64(side)
			return int(from), int(from + random.Float64()*reach*float64(side))
		}
		x0, x1 := at(width)
		y0, y1 := at(height)
		shade := uint8(random.IntN(256))
		draw.Draw(img, image.Rect(x0, y0, x1, y1), image.NewUniform(color.RGBA{shade, shade, uint8(random.IntN(256)), 255}), image.Point{}, draw.Src)
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

func decoded(t testing.TB, data []byte) image.Image {
	t.Helper()
	kind := Sniff(data)
	if _, err := Inspect(kind, data, 50_000_000); err != nil {
		t.Fatal(err)
	}
	img, err := Decode(context.Background(), kind, data)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// tagged returns an EXIF block with an orientation and a location, in either byte order.
func tagged(order binary.AppendByteOrder, orientation int) []byte {
	return taggedAs(kindLong, order, orientation)
}

// taggedAs is tagged with the kind of the entry that points to the location.
func taggedAs(pointer uint16, order binary.AppendByteOrder, orientation int) []byte {
	name := "II*\x00"
	if order.AppendUint16(nil, 1)[1] == 1 {
		name = "MM\x00*"
	}
	b := order.AppendUint32([]byte(name), 8)
	entry := func(tag, kind uint16, count uint32, value []byte) {
		b = order.AppendUint32(order.AppendUint16(order.AppendUint16(b, tag), kind), count)
		b = append(b, append(value, make([]byte, 4-len(value))...)...)
	}
	long := func(v uint32) []byte { return order.AppendUint32(nil, v) }
	b = order.AppendUint16(b, 3)
	entry(tagOrientation, kindShort, 1, order.AppendUint16(nil, uint16(orientation)))
	entry(tagDateTime, kindASCII, 20, long(50))
	entry(tagGPS, pointer, 1, long(70))
	b = order.AppendUint32(b, 0)
	b = append(b, "2020:02:03 04:05:06\x00"...)
	b = order.AppendUint16(b, 4)
	entry(tagLatitudeRef, kindASCII, 2, []byte("S\x00"))
	entry(tagLatitude, kindRational, 3, long(124))
	entry(tagLongitudeRef, kindASCII, 2, []byte("E\x00"))
	entry(tagLongitude, kindRational, 3, long(148))
	b = order.AppendUint32(b, 0)
	for _, v := range []uint32{33, 1, 30, 1, 0, 1, 151, 1, 15, 1, 0, 1} {
		b = order.AppendUint32(b, v)
	}
	return b
}

func jpegWith(data, block []byte) []byte {
	segment := append([]byte(exifName), block...)
	out := binary.BigEndian.AppendUint16([]byte{0xff, 0xd8, 0xff, 0xe1}, uint16(len(segment)+2))
	return append(append(out, segment...), data[2:]...)
}

func pngWith(data, block []byte) []byte {
	var chunk bytes.Buffer
	writeChunk(&chunk, "eXIf", block)
	const header = 33 // signature and IHDR
	return append(append(bytes.Clone(data[:header]), chunk.Bytes()...), data[header:]...)
}

func TestReadsTimeAndPlaceInBothByteOrders(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian} {
		if got := ReadExif(taggedAs(kindIFD, order, 6)).Location; got == nil || *got != (Location{-33.5, 151.25}) {
			t.Errorf("%v, by an entry that is a directory: %v", order, got)
		}
		got := ReadExif(tagged(order, 6))
		if got.Orientation != 6 || got.TakenAt != time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC) || got.Location == nil || *got.Location != (Location{-33.5, 151.25}) {
			t.Errorf("%v: %+v", order, got)
		}
	}
}

func TestCleaningTouchesNoPixel(t *testing.T) {
	img := drawn(60, 40, 1)
	for name, file := range map[string][]byte{
		"jpeg": append(jpegWith(jpegOf(img, 80), tagged(binary.LittleEndian, 8)), "what follows the end"...),
		"png":  pngWith(pngOf(img), tagged(binary.BigEndian, 8)),
	} {
		before := decoded(t, file)
		for _, strip := range []Strip{StripGPS, StripAll, StripNone} {
			clean, ok := Clean(Sniff(file), file, strip)
			if !ok {
				t.Fatalf("%s, %s: not cleaned", name, strip)
			}
			exif := ReadExif(Metadata(Sniff(clean), clean))
			if exif.Orientation != 8 || (exif.Location == nil) != (strip != StripNone) || exif.TakenAt.IsZero() != (strip == StripAll) {
				t.Errorf("%s, %s: %+v is left", name, strip, exif)
			}
			if strip != StripNone && bytes.Contains(clean, []byte("what follows")) {
				t.Errorf("%s, %s: what follows the end is left", name, strip)
			}
			after := decoded(t, clean)
			for y := range 40 {
				for x := range 60 {
					if before.At(x, y) != after.At(x, y) {
						t.Fatalf("%s, %s: the pixel %d, %d changed", name, strip, x, y)
					}
				}
			}
		}
	}
	if _, ok := withoutPlace(tagged(binary.BigEndian, 1)); !ok {
		t.Error("want the place removed")
	}
	place := []byte{0, 0, 0, 151}
	for _, kind := range []uint16{kindLong, kindIFD} {
		if out, _ := withoutPlace(taggedAs(kind, binary.BigEndian, 1)); bytes.Contains(out, place) {
			t.Errorf("by an entry of kind %d: the numbers of the place are still in the block", kind)
		}
	}
}

func TestAllOrientationsStandUpright(t *testing.T) {
	upright := image.NewRGBA(image.Rect(0, 0, 3, 2))
	for i := range 6 {
		upright.SetRGBA(i%3, i/3, color.RGBA{uint8(i), 0, 0, 255})
	}
	// The position in the stored picture of the upright pixel x, y.
	stored := map[int]func(x, y int) (int, int){
		1: func(x, y int) (int, int) { return x, y },
		2: func(x, y int) (int, int) { return 2 - x, y },
		3: func(x, y int) (int, int) { return 2 - x, 1 - y },
		4: func(x, y int) (int, int) { return x, 1 - y },
		5: func(x, y int) (int, int) { return y, x },
		6: func(x, y int) (int, int) { return y, 2 - x },
		7: func(x, y int) (int, int) { return 1 - y, 2 - x },
		8: func(x, y int) (int, int) { return 1 - y, x },
	}
	for orientation, at := range stored {
		file := image.NewRGBA(image.Rect(0, 0, 3, 2))
		if orientation >= 5 {
			file = image.NewRGBA(image.Rect(0, 0, 2, 3))
		}
		for y := range 2 {
			for x := range 3 {
				sx, sy := at(x, y)
				file.Set(sx, sy, upright.At(x, y))
			}
		}
		if got := orient(file, orientation); !bytes.Equal(got.Pix, upright.Pix) {
			t.Errorf("orientation %d: %v, want %v", orientation, got.Pix, upright.Pix)
		}
	}
}

func TestWebPIsDecodedAndCleaned(t *testing.T) {
	for name, text := range map[string]string{ // one pixel each
		"lossless": "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==",
		"lossy":    "UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA",
	} {
		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if b := decoded(t, plain).Bounds(); b.Dx() != 1 || b.Dy() != 1 {
			t.Errorf("%s: %v, want one pixel", name, b)
		}
		var file bytes.Buffer
		file.WriteString("RIFF\x00\x00\x00\x00WEBP")
		writeRIFF(&file, "VP8X", []byte{0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		file.Write(plain[12:])
		writeRIFF(&file, "EXIF", tagged(binary.LittleEndian, 1))
		writeRIFF(&file, "XMP ", []byte("<x>GPS</x>"))
		whole := file.Bytes()
		binary.LittleEndian.PutUint32(whole[4:], uint32(len(whole)-8))
		for strip, flags := range map[Strip]byte{StripGPS: 0x08, StripAll: 0} {
			clean, ok := Clean("image/webp", whole, strip)
			if !ok || ReadExif(Metadata("image/webp", clean)).Location != nil || bytes.Contains(clean, []byte("<x>")) || clean[20] != flags {
				t.Errorf("%s, %s: %v % x", name, strip, ok, clean)
			}
			decoded(t, clean)
		}
	}
}

func TestTargets(t *testing.T) {
	img := decoded(t, jpegOf(drawn(1000, 500, 1), 90))
	for _, x := range []struct {
		target        Target
		width, height int
	}{
		{Target{Width: 100, Height: 100}, 100, 50},
		{Target{Width: 100, Height: 100, Cover: true}, 100, 100},
		{Target{Width: 2000, Height: 2000}, 1000, 500},
		{Target{Width: 2000, Height: 300, Cover: true}, 1000, 300},
		{Target{Width: 1, Height: 1}, 1, 1},
	} {
		got := Fit(Base(img, 1, []Target{x.target, {Width: 120, Height: 120}}), x.target).Rect
		if got.Dx() != x.width || got.Dy() != x.height {
			t.Errorf("%+v: %v, want %d by %d", x.target, got, x.width, x.height)
		}
	}
}

func TestAFrameStandsOnItsCanvas(t *testing.T) {
	red := color.RGBA{255, 0, 0, 255}
	frame := image.NewPaletted(image.Rect(90, 10, 100, 60), color.Palette{red})
	var file bytes.Buffer
	if err := gif.EncodeAll(&file, &gif.GIF{Image: []*image.Paletted{frame}, Delay: []int{1}, Config: image.Config{Width: 100, Height: 80}}); err != nil {
		t.Fatal(err)
	}
	img := decoded(t, file.Bytes())
	if b := img.Bounds(); b != image.Rect(0, 0, 100, 80) || img.At(95, 30) != red || img.At(50, 30) != (color.RGBA{}) {
		t.Errorf("%v, %v and %v, want the canvas, transparent but for its frame", b, img.At(95, 30), img.At(50, 30))
	}
}

func TestTheFirstFrameOfAMovingWebPIsDecoded(t *testing.T) {
	still, err := base64.StdEncoding.DecodeString("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==") // one pixel
	if err != nil {
		t.Fatal(err)
	}
	moving := func(x, y byte) []byte {
		var file bytes.Buffer
		file.WriteString("RIFF\x00\x00\x00\x00WEBP")
		writeRIFF(&file, "VP8X", []byte{0x12, 0, 0, 0, 7, 0, 0, 5, 0, 0}) // 8 by 6
		writeRIFF(&file, "ANIM", make([]byte, 6))
		for range 2 {
			writeRIFF(&file, "ANMF", append([]byte{x / 2, 0, 0, y / 2, 0, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0}, still[12:]...))
		}
		binary.LittleEndian.PutUint32(file.Bytes()[4:], uint32(file.Len()-8))
		return file.Bytes()
	}
	img, want := decoded(t, moving(6, 4)), decoded(t, still).At(0, 0)
	if got := color.NRGBAModel.Convert(img.At(6, 4)); img.Bounds() != image.Rect(0, 0, 8, 6) || got != want || img.At(0, 0) != (color.RGBA{}) {
		t.Errorf("%v with %v, want 8 by 6, transparent but for %v", img.Bounds(), got, want)
	}
	if _, ok := Clean("image/webp", moving(6, 4), StripGPS); !ok {
		t.Error("want it cleaned")
	}
	if _, err := Decode(context.Background(), "image/webp", moving(8, 4)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, want a frame beyond the canvas refused", err)
	}
}

func TestShrinkingTakesWhatIsCounted(t *testing.T) {
	if testing.Short() {
		t.Skip("the short run is that of the race detector, under which pixels are allocated one by one")
	}
	for _, c := range []struct {
		width, height int
		target        Target
	}{
		{1910, 1910, Target{Width: 640, Height: 640}}, // exceeds the target by less than what is averaged first
		{2000, 1500, Target{Width: 640, Height: 640}},
		{1250, 1000, Target{Width: 1200, Height: 1200}},
		{8000, 400, Target{Width: 136, Height: 136, Cover: true}},
	} {
		img := image.NewYCbCr(image.Rect(0, 0, c.width, c.height), image.YCbCrSubsampleRatio420)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		Base(img, 1, []Target{c.target})
		runtime.ReadMemStats(&after)
		took, counted := int64(after.TotalAlloc-before.TotalAlloc), 4*Scratch(c.width, c.height, []Target{c.target})
		const bands = 4 << 20
		if took > counted+bands || took < counted/2 {
			t.Errorf("%+v: %d KB were allocated, %d KB counted", c, took>>10, counted>>10)
		}
	}
}

// TestBoxesAgree compares the fast box with the general one.
func TestBoxesAgree(t *testing.T) {
	img := decoded(t, jpegOf(drawn(101, 67, 5), 95)).(*image.YCbCr)
	general := image.NewRGBA(img.Rect)
	for y := range 67 {
		for x := range 101 {
			general.Set(x, y, img.At(x, y))
		}
	}
	for _, factor := range []int{2, 3, 7} {
		fast, slow := box(img, factor), box(general, factor)
		sum := 0.0 // colors that JPEG cannot represent differ more at edges
		for i := range fast.Pix {
			sum += math.Abs(float64(fast.Pix[i]) - float64(slow.Pix[i]))
		}
		if mean := sum / float64(len(fast.Pix)); mean > 4 {
			t.Errorf("factor %d: bytes differ by %.1f in the mean", factor, mean)
		}
	}
}

func TestBombsAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	huge := pngOf(image.NewGray(image.Rect(0, 0, 8, 8)))
	binary.BigEndian.PutUint32(huge[16:], 1<<16-1)
	binary.BigEndian.PutUint32(huge[20:], 1<<16-1)
	binary.BigEndian.PutUint32(huge[29:], crc32.ChecksumIEEE(huge[12:29]))
	var film bytes.Buffer
	if err := gif.Encode(&film, image.NewPaletted(image.Rect(0, 0, 4, 4), color.Palette{color.Black}), nil); err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(film.Bytes()[6:], 60000)
	binary.LittleEndian.PutUint16(film.Bytes()[8:], 60000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, data := range map[string][]byte{"image/png": huge, "image/gif": film.Bytes()} {
		if _, err := Inspect(name, data, 50_000_000); !errors.Is(err, ErrTooManyPixels) {
			t.Errorf("%s: %v, want ErrTooManyPixels", name, err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes were allocated for pictures that are refused", grown)
	}
}

func TestWeightsAreWhatDecodersTake(t *testing.T) {
	deep := image.NewNRGBA64(image.Rect(0, 0, 10, 10))
	if h, err := Inspect("image/png", pngOf(deep), 1000); err != nil || h.Weight != 200 {
		t.Errorf("16 bits: %+v, %v, want a weight of 200", h, err)
	}
	flat := jpegOf(drawn(10, 10, 1), 80)
	if h, err := Inspect("image/jpeg", flat, 1000); err != nil || h.Weight != 100 {
		t.Errorf("baseline: %+v, %v, want a weight of 100", h, err)
	}
	at := bytes.Index(flat, []byte{0xff, 0xc0})
	flat[at+1] = 0xc2
	flat = slices.Insert(flat, at, 0, 0xff, 0) // bytes that decoders skip
	if h, err := Inspect("image/jpeg", flat, 1000); err != nil || h.Weight != 400 {
		t.Errorf("progressive: %+v, %v, want a weight of 400", h, err)
	}
}

func TestDecodingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Decode(ctx, "image/png", pngOf(drawn(50, 50, 1))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

// alike hashes pictures and copies of them (re-encoded, smaller, recompressed and brighter) and
// counts the pairs that are found.
func alike(t testing.TB, pictures, width int) (hashed int, precision, recall float64) {
	const near, copies = 8, 4
	type look struct {
		hash uint64
		of   int
	}
	var looks []look
	for i := range pictures {
		img := drawn(width, width*3/4, uint64(i))
		looks = append(looks, look{Hash(img), i})
		for _, data := range [copies][]byte{jpegOf(img, 90), jpegOf(shrink(img, 1.6), 85), jpegOf(img, 35), jpegOf(shrink(brighter(img), 1.3), 60)} {
			looks = append(looks, look{Hash(decoded(t, data)), i})
		}
	}
	found, right := 0, 0
	for i, a := range looks {
		for _, b := range looks[:i] {
			if bits.OnesCount64(a.hash^b.hash) <= near {
				found++
				if a.of == b.of {
					right++
				}
			}
		}
	}
	pairs := pictures * (copies + 1) * copies / 2
	return len(looks), float64(right) / float64(found), float64(right) / float64(pairs)
}

func brighter(img *image.RGBA) *image.RGBA {
	out := image.NewRGBA(img.Rect)
	for i, v := range img.Pix {
		out.Pix[i] = uint8(min(255, int(v)*11/10))
	}
	return out
}

// TestHashesTellPicturesApart prints recall and precision of finding copies. KIT_SOAK sets 10,000
// pictures.
func TestHashesTellPicturesApart(t *testing.T) {
	pictures := 60
	if testing.Short() {
		pictures = 12
	}
	if os.Getenv("KIT_SOAK") != "" {
		pictures = 2000
	}
	n, precision, recall := alike(t, pictures, 128)
	t.Logf("%d pictures: precision %.4f, recall %.4f of pairs", n, precision, recall)
	if recall < 0.98 || precision < 0.9 {
		t.Errorf("precision %.3f, want 0.9, and recall %.3f, want 0.98", precision, recall)
	}
	if Hash(image.NewGray(image.Rect(0, 0, 9, 9))) != 0 {
		t.Error("want no hash of one colour")
	}
}

// iptc returns the datasets of IPTC's second record as Photoshop's resource.
func iptc(sets map[byte]string) []byte {
	var data []byte
	for _, n := range slices.Sorted(maps.Keys(sets)) {
		data = append(data, 0x1c, 2, n)
		data = append(binary.BigEndian.AppendUint16(data, uint16(len(sets[n]))), sets[n]...)
	}
	body := binary.BigEndian.AppendUint32([]byte("Photoshop 3.0\x008BIM\x04\x04\x00\x00"), uint32(len(data)))
	return append(append(body, data...), make([]byte, len(data)%2)...)
}

func TestNamesOfPlacesAreRemovedWithThePlace(t *testing.T) {
	const xmp = "http://ns.adobe.com/xap/1.0/\x00"
	credit, city := iptc(map[byte]string{80: "Ada", 116: "© Ada"}), iptc(map[byte]string{80: "Ada", 90: "Porto"})
	for name, c := range map[string]struct {
		segments map[byte][]byte
		kept     bool
	}{
		"credit in IPTC":              {map[byte][]byte{0xed: credit}, true},
		"city in IPTC":                {map[byte][]byte{0xed: city}, false},
		"credit in XMP":               {map[byte][]byte{0xe1: []byte(xmp + `<rdf:Description dc:creator="Ada" photoshop:ColorMode="3"/>`)}, true},
		"city in XMP":                 {map[byte][]byte{0xe1: []byte(xmp + `<rdf:Description photoshop:City="Porto"/>`)}, false},
		"state as an element":         {map[byte][]byte{0xe1: []byte(xmp + `<ps:State>Porto</ps:State>`)}, false},
		"country":                     {map[byte][]byte{0xe1: []byte(xmp + `<rdf:Description photoshop:Country="Porto"/>`)}, false},
		"country's code":              {map[byte][]byte{0xe1: []byte(xmp + `<rdf:Description Iptc4xmpCore:CountryCode="Porto"/>`)}, false},
		"location":                    {map[byte][]byte{0xe1: []byte(xmp + `<rdf:Description Iptc4xmpCore:Location="Porto"/>`)}, false},
		"location of the IPTC extras": {map[byte][]byte{0xe1: []byte(xmp + `<Iptc4xmpExt:LocationShown><x:Name>Porto</x:Name></Iptc4xmpExt:LocationShown>`)}, false},
	} {
		file := jpegOf(drawn(8, 8, 1), 80)
		for marker, body := range c.segments {
			segment := append(binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(body)+2)), body...)
			file = slices.Insert(file, 2, segment...)
		}
		clean, ok := Clean("image/jpeg", file, StripGPS)
		if !ok || bytes.Contains(clean, []byte("Porto")) || bytes.Contains(clean, []byte("Ada")) != c.kept {
			t.Errorf("%s: %q", name, clean[:min(len(clean), 160)])
		}
		if clean, ok := Clean("image/jpeg", file, StripNone); !ok || !bytes.Equal(clean, file) {
			t.Errorf("%s: changed although nothing is to be removed", name)
		}
	}
	// A name that goes on in the next segment.
	half := len(city) - 3
	rest := append([]byte(photoshopName), city[half:]...)
	file := jpegOf(drawn(8, 8, 1), 80)
	for _, body := range [][]byte{rest, city[:half]} {
		file = slices.Insert(file, 2, append(binary.BigEndian.AppendUint16([]byte{0xff, 0xed}, uint16(len(body)+2)), body...)...)
	}
	if clean, ok := Clean("image/jpeg", file, StripGPS); !ok || bytes.Contains(clean, []byte(photoshopName)) {
		t.Errorf("a part of the name is left: %q", clean[:80])
	}
	for _, tag := range []uint16{tagXMP, tagIPTC, tagPhotoshop} {
		block := tagged(binary.BigEndian, 6)
		binary.BigEndian.PutUint16(block[22:], tag) // instead of the time
		if clean, _ := Clean("image/jpeg", jpegWith(jpegOf(drawn(8, 8, 1), 80), block), StripGPS); len(Metadata("image/jpeg", clean)) != len(upright(6)) {
			t.Errorf("a block with tag %#x keeps %q", tag, Metadata("image/jpeg", clean))
		}
	}
}

// greedy returns an EXIF block of a size whose first directory is also its GPS directory. Some of
// its entries point to it, the others are as long as the block.
func greedy(size, pointers, long int) []byte {
	order, n := binary.BigEndian, pointers+long
	b := order.AppendUint16([]byte("MM\x00*\x00\x00\x00\x08"), uint16(n))
	entry := func(tag, kind uint16, count, value int) {
		b = order.AppendUint16(order.AppendUint16(b, tag), kind)
		b = order.AppendUint32(order.AppendUint32(b, uint32(count)), uint32(value))
	}
	for range pointers {
		entry(tagGPS, kindLong, 1, 8)
	}
	end := 8 + 2 + n*entrySize + 4
	for range long {
		entry(1, 1, size-end, end)
	}
	return append(b, make([]byte, size-len(b))...)
}

func TestDirectoriesAreReadAndBlankedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		pointers, long int
		ok             bool
	}{"one place": {1, 1, true}, "two pointers to it": {2, 1, false}, "values that overlap": {1, 2, false}} {
		block := greedy(60_000, c.pointers, c.long)
		if _, ok := withoutPlace(block); ok != c.ok {
			t.Errorf("%s: %v, want %v", name, ok, c.ok)
		}
		file := jpegWith(jpegOf(drawn(8, 8, 1), 80), block)
		if clean, ok := Clean("image/jpeg", file, StripGPS); !ok || (len(clean) == len(file)) != c.ok {
			t.Errorf("%s: %d bytes of %d are left", name, len(clean), len(file))
		}
	}
	file := tagged(binary.BigEndian, 1)
	const entries = 10
	copy(file[entries:], greedy(200, 2, 0)[entries:entries+entrySize]) // before the entry of the location
	if got := ReadExif(file); got.Location != nil {
		t.Errorf("the place of a second pointer was read: %+v", got)
	}
}

func FuzzExif(f *testing.F) {
	f.Add(greedy(4096, 100, 100))
	f.Add(tagged(binary.BigEndian, 3))
	f.Add(tagged(binary.LittleEndian, 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		if o := ReadExif(data).Orientation; o < 1 || o > 8 {
			t.Errorf("orientation %d", o)
		}
		if out, ok := withoutPlace(data); ok {
			if len(out) != len(data) {
				t.Error("the block changed its length")
			}
			if ReadExif(out).Location != nil {
				t.Error("a place is left")
			}
		}
	})
}

func FuzzClean(f *testing.F) {
	img := drawn(8, 8, 1)
	f.Add(jpegWith(jpegOf(img, 50), tagged(binary.BigEndian, 2)))
	f.Add(pngWith(pngOf(img), tagged(binary.BigEndian, 2)))
	f.Add([]byte("RIFF\x16\x00\x00\x00WEBPVP8X\x01\x00\x00\x00\x0c\x00EXIF\x00\x00\x00\x00"))
	f.Add(heifWith(tagged(binary.BigEndian, 2)))
	f.Add(heifInIdat(tagged(binary.BigEndian, 2), 0))
	f.Add(gifWith("!\xff\vXMP DataXMP\x01x\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		kind := Sniff(data)
		for _, strip := range []Strip{StripGPS, StripAll} {
			clean, ok := Clean(kind, data, strip)
			if !ok {
				continue
			}
			if len(clean) > len(data)+2*len(upright(1))+16 {
				t.Errorf("%d bytes became %d", len(data), len(clean))
			}
			if exif := ReadExif(Metadata(kind, clean)); exif.Location != nil {
				t.Errorf("%s, %s: a place is left", kind, strip)
			}
		}
	})
}

// heifBox returns a box of a HEIF file.
func heifBox(name string, bodies ...[]byte) []byte {
	body := bytes.Join(bodies, nil)
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+8)), name...), body...)
}

// heifWith returns a HEIF file of 30 by 20 with an EXIF block and an XMP packet, without any
// picture.
func heifWith(block []byte) []byte {
	const xmp = "<x:xmpmeta>GPS</x:xmpmeta>"
	item := func(id byte, kind string) []byte {
		return heifBox("infe", []byte{2, 0, 0, 0, 0, id, 0, 0}, []byte(kind), []byte{0})
	}
	build := func(at uint32) []byte {
		place := func(id byte, at, length uint32) []byte {
			b := []byte{0, id, 0, 0, 0, 1}
			return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, at), length)
		}
		exif := uint32(4 + len(block))
		return bytes.Join([][]byte{
			heifBox("ftyp", []byte("heic"), make([]byte, 4)),
			heifBox("meta", make([]byte, 4), heifBox("iinf", []byte{0, 0, 0, 0, 0, 2}, item(1, "Exif"), item(2, "mime")),
				heifBox("iprp", heifBox("ipco", heifBox("ispe", make([]byte, 4), []byte{0, 0, 0, 30, 0, 0, 0, 20}))),
				heifBox("iloc", []byte{0, 0, 0, 0, 0x44, 0, 0, 2}, place(1, at, exif), place(2, at+exif, uint32(len(xmp))))),
			heifBox("mdat", make([]byte, 4), block, []byte(xmp)),
		}, nil)
	}
	length := len(build(0))
	return build(uint32(length - len(xmp) - len(block) - 4))
}

// heifInIdat returns a HEIF file whose EXIF block is in the box idat, at a declared offset.
func heifInIdat(block []byte, at uint32) []byte {
	item := append(make([]byte, 4), block...)
	place := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{0, 1, 0, 1, 0, 0, 0, 1}, at), uint32(len(item)))
	return bytes.Join([][]byte{
		heifBox("ftyp", []byte("heic"), make([]byte, 4)),
		heifBox("meta", make([]byte, 4), heifBox("iinf", []byte{0, 0, 0, 0, 0, 1}, heifBox("infe", []byte{2, 0, 0, 0, 0, 1, 0, 0}, []byte("Exif\x00"))),
			heifBox("iloc", []byte{1, 0, 0, 0, 0x44, 0, 0, 1}, place), heifBox("idat", item)),
	}, nil)
}

func TestThePlaceIsFoundWhereHEIFKeepsSmallItems(t *testing.T) {
	data := heifInIdat(tagged(binary.BigEndian, 1), 0)
	if ReadExif(Metadata("image/heic", data)).Location == nil {
		t.Fatal("want a place in the file")
	}
	clean, ok := Clean("image/heic", data, StripGPS)
	if exif := ReadExif(Metadata("image/heic", clean)); !ok || exif.Location != nil || exif.TakenAt.IsZero() {
		t.Errorf("%v %+v, want the time without the place", ok, exif)
	}
	empty := bytes.Replace(data, []byte{0, 1, 0, 1, 0, 0, 0, 1, 0, 0}, []byte{0, 1, 0, 1, 0, 0, 0, 0, 0, 0}, 1)
	if _, ok := Clean("image/heic", empty, StripGPS); !ok || bytes.Equal(empty, data) {
		t.Error("want a file kept whose metadata has no extents")
	}
	if _, ok := Clean("image/heic", heifInIdat(tagged(binary.BigEndian, 1), 1), StripGPS); ok {
		t.Error("want a file refused whose metadata is not where it is said to be")
	}
}

// gifWith inserts blocks before the end of a GIF.
func gifWith(blocks ...string) []byte {
	var file bytes.Buffer
	if err := gif.Encode(&file, drawn(20, 10, 1), nil); err != nil {
		panic(err)
	}
	whole := file.Bytes()
	return append(whole[:len(whole)-1], strings.Join(blocks, "")+";"...)
}

func TestGIFIsCleaned(t *testing.T) {
	magic := []byte{1} // ends XMP, which is not stored in blocks, for readers of blocks
	for v := 255; v >= 0; v-- {
		magic = append(magic, byte(v))
	}
	const loop, comment = "!\xff\vNETSCAPE2.0\x03\x01\x00\x00\x00", "!\xfe\x05hello\x00"
	data := append(gifWith(loop, "!\xff\vXMP DataXMP<x exif:GPSLatitude=\"48,30N\"/>"+string(magic)+"\x00", comment), "and GPS behind it"...)
	for strip, want := range map[Strip][]byte{StripNone: data, StripGPS: gifWith(loop, comment), StripAll: gifWith(loop)} {
		if clean, ok := Clean("image/gif", data, strip); !ok || !bytes.Equal(clean, want) {
			t.Errorf("%s: %v, %q is left, want %q", strip, ok, clean, want)
		}
	}
	if clean, ok := Clean("image/gif", gifWith(loop, "\x00", comment), StripGPS); !ok || !bytes.Equal(clean, gifWith(loop, comment)) {
		t.Errorf("behind a stray zero: %q", clean)
	}
	for n := range data { // truncated files
		if clean, ok := Clean("image/gif", data[:n], StripGPS); ok && (len(clean) > n+1 || bytes.Contains(clean, []byte("GPS"))) {
			t.Errorf("of %d bytes: %q", n, clean)
		}
	}
}

func TestHEIFIsMeasuredAndCleaned(t *testing.T) {
	data := heifWith(tagged(binary.BigEndian, 6))
	const kind = "image/heic"
	if Sniff(data) != kind {
		t.Fatalf("%q", Sniff(data))
	}
	if h, err := Inspect(kind, data, 600); err != nil || h.Width != 30 || h.Height != 20 {
		t.Errorf("%+v %v", h, err)
	}
	if _, err := Inspect(kind, data, 599); !errors.Is(err, ErrTooManyPixels) {
		t.Errorf("%v, want too many pixels", err)
	}
	if _, err := Inspect(kind, data[:30], 600); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, want a file without a size refused", err)
	}
	if exif := ReadExif(Metadata(kind, data)); exif.Location == nil || exif.TakenAt.IsZero() {
		t.Fatalf("%+v", exif)
	}
	for strip, timed := range map[Strip]bool{StripNone: true, StripGPS: true, StripAll: false} {
		clean, ok := Clean(kind, data, strip)
		exif := ReadExif(Metadata(kind, clean))
		if !ok || len(clean) != len(data) || exif.TakenAt.IsZero() == timed {
			t.Errorf("%s: %v %+v", strip, ok, exif)
		}
		if strip != StripNone && (exif.Location != nil || bytes.Contains(clean, []byte("GPS"))) {
			t.Errorf("%s leaves the place", strip)
		}
	}
}
