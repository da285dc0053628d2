package testers

import (
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/budget"
)

// FuzzForm reads what mail programs and buttons send, in either encoding: within
// a budget of time, and with no more values than bytes came.
func FuzzForm(f *testing.F) {
	const multi = "multipart/form-data; boundary=b"
	f.Add("application/x-www-form-urlencoded", "List-Unsubscribe=One-Click")
	f.Add("application/x-www-form-urlencoded", "do=opt-out&do=%zz;;&=")
	f.Add(multi, "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n")
	f.Add(multi, "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\nfile\r\n--b--\r\n")
	f.Add(multi, strings.Repeat("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n", 80))
	f.Add(multi, "--b\r\n"+strings.Repeat("X-Y: z\r\n", 500))
	f.Add(`multipart/form-data; boundary=""`, "--\r\n\r\n--")
	f.Add("multipart/form-data; boundary*0=b; boundary*1*=utf-8''%62", "--bb\r\n")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		if len(body) > maxForm || len(contentType) > maxForm {
			return
		}
		budget.Hold(t, len(body)+len(contentType), func() {
			form, err := parseForm(contentType, []byte(body))
			if err != nil {
				return
			}
			values := 0
			for _, each := range form {
				values += len(each)
			}
			if values > len(body) {
				t.Errorf("%d values of %d bytes", values, len(body))
			}
		})
	})
}
