package form_test

import (
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/budget"
	"github.com/kitbackend/kit/internal/form"
)

const multi = "multipart/form-data; boundary=b"

func TestEitherEncodingIsRead(t *testing.T) {
	for contentType, body := range map[string]string{
		"application/x-www-form-urlencoded": "List-Unsubscribe=One-Click",
		"":                                  "List-Unsubscribe=One-Click",
		multi:                               "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n",
	} {
		values, err := form.Parse(contentType, []byte(body))
		if err != nil || values.Get("List-Unsubscribe") != "One-Click" {
			t.Errorf("%q: %v %v", contentType, values, err)
		}
	}
}

// FuzzParse reads what mail programs and buttons send, in either encoding: within a
// budget of time, and with no more values than bytes came.
func FuzzParse(f *testing.F) {
	f.Add("application/x-www-form-urlencoded", "List-Unsubscribe=One-Click")
	f.Add("application/x-www-form-urlencoded", "do=opt-out&do=%zz;;&=")
	f.Add(multi, "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n")
	f.Add(multi, "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\nfile\r\n--b--\r\n")
	f.Add(multi, strings.Repeat("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n", 80))
	f.Add(multi, "--b\r\n"+strings.Repeat("X-Y: z\r\n", 2000))
	f.Add(`multipart/form-data; boundary=""`, "--\r\n\r\n--")
	f.Add("multipart/form-data; boundary*0=b; boundary*1*=utf-8''%62", "--bb\r\n")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		if len(body) > 16<<10 || len(contentType) > 4<<10 {
			return
		}
		budget.Hold(t, len(body)+len(contentType), func() {
			values, err := form.Parse(contentType, []byte(body))
			if err != nil {
				return
			}
			count := 0
			for _, each := range values {
				count += len(each)
			}
			if count > len(body) {
				t.Errorf("%d values of %d bytes", count, len(body))
			}
		})
	})
}
