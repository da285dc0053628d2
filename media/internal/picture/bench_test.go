//go:build unix

package picture

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// spent returns the processor time of this process, or of the children it has waited for.
func spent(b *testing.B, who int) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func thumbnail(b *testing.B, data []byte) {
	img, err := Decode(context.Background(), "image/jpeg", data)
	if err != nil {
		b.Fatal(err)
	}
	target := Target{Width: 640, Height: 640}
	if _, _, err := Encode(Fit(Base(img, 1, []Target{target}), target), 80); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkThumbnail makes pictures of 640 pixels from one of 12 MP and from a gallery of 100 of 2
// MP, including decoding and encoding. If KIT_TEST_VIPS names a vips, its program vipsthumbnail
// does the same with the same files.
func BenchmarkThumbnail(b *testing.B) {
	for name, c := range map[string]struct{ pictures, width int }{"12MP": {1, 4000}, "gallery of 100": {100, 1632}} {
		files := make([][]byte, c.pictures)
		for i := range files {
			if i < 10 { // drawing takes longer than the measured work
				files[i] = jpegOf(drawn(c.width, c.width*3/4, uint64(i)), 90)
			} else {
				files[i] = files[i%10]
			}
		}
		report := func(b *testing.B, who int, run func()) {
			before := spent(b, who)
			n := 0
			for b.Loop() {
				run()
				n++
			}
			b.ReportMetric(float64((spent(b, who)-before).Milliseconds())/float64(n), "cpu-ms/op")
		}
		b.Run(name+"/kit", func(b *testing.B) {
			report(b, syscall.RUSAGE_SELF, func() {
				for _, data := range files {
					thumbnail(b, data)
				}
			})
		})
		vips := os.Getenv("KIT_TEST_VIPS")
		if vips == "" {
			continue
		}
		b.Run(name+"/vipsthumbnail", func(b *testing.B) {
			dir := b.TempDir()
			args := []string{"--size", "640x640", "-o", "small-%s.jpg[Q=80]"}
			for i, data := range files {
				file := filepath.Join(dir, strconv.Itoa(i)+".jpg")
				if err := os.WriteFile(file, data, 0o600); err != nil {
					b.Fatal(err)
				}
				args = append(args, file)
			}
			report(b, syscall.RUSAGE_CHILDREN, func() {
				cmd := exec.Command(filepath.Join(filepath.Dir(vips), "vipsthumbnail"), args...)
				cmd.Env = append(os.Environ(), "VIPS_CONCURRENCY=1")
				if text, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v %s", err, text)
				}
			})
		})
	}
}
