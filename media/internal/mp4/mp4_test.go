package mp4

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// over returns a source that reads from memory and counts the bytes.
func over(data []byte, read *int64) Source {
	return func(offset, length int64) ([]byte, error) {
		if offset < 0 || length < 0 || offset+length > int64(len(data)) {
			return nil, io.ErrUnexpectedEOF
		}
		*read += length
		return data[offset : offset+length], nil
	}
}

func box(name string, body ...byte) []byte {
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+8)), name...), body...)
}

func sample() []byte {
	header := make([]byte, 100)
	binary.BigEndian.PutUint32(header[12:], 600)
	binary.BigEndian.PutUint32(header[16:], 1500)
	return append(append(box("ftyp", []byte("isom")...), box("mdat", make([]byte, 64)...)...), box("moov", box("mvhd", header...)...)...)
}

func TestReadsTheDuration(t *testing.T) {
	var read int64
	info, err := Read(over(sample(), &read), int64(len(sample())))
	if err != nil || info.DurationMs != 2500 {
		t.Errorf("%+v, %v, want 2500 ms", info, err)
	}
}

func TestRefusesWhatIsNotWhole(t *testing.T) {
	whole := sample()
	for n := range whole {
		var read int64
		if _, err := Read(over(whole[:n], &read), int64(n)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("of %d bytes %d: %v, want ErrCorrupt", len(whole), n, err)
		}
	}
}

func TestReadsLittleOfAHugeFile(t *testing.T) {
	const size = int64(1) << 40
	var read int64
	_, err := Read(func(_, length int64) ([]byte, error) {
		read += length
		head := binary.BigEndian.AppendUint32(nil, 16)
		return append(append(head, "free"...), make([]byte, 8)...), nil
	}, size)
	if !errors.Is(err, ErrCorrupt) || read > 2048 {
		t.Errorf("%v after %d bytes, want ErrCorrupt after few", err, read)
	}
	huge := binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint32(nil, 1), "moov"...), uint64(size))
	if _, err := Read(func(_, _ int64) ([]byte, error) { return huge, nil }, size); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add(append(box("ftyp"), box("moov", box("trak", box("mdia", box("hdlr", make([]byte, 20)...)...)...)...)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		var read int64
		info, err := Read(over(data, &read), int64(len(data)))
		if read > int64(len(data))+16*maxTop {
			t.Errorf("%d bytes read of %d", read, len(data))
		}
		if err == nil && (info.Width < 0 || info.Height < 0 || info.Width > 65535 || len(info.Codec) > 4) {
			t.Errorf("%+v", info)
		}
	})
}
