package mount_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/kitbackend/kit/internal/mount"
)

// sink is a response writer that costs nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// BenchmarkRoute is the cost of the mount alone: a user row with a bearer
// token next to a bare echo handler, without a network.
func BenchmarkRoute(b *testing.B) {
	e := echo.New()
	e.GET("/things/who", func(c echo.Context) error {
		return c.JSON(http.StatusOK, map[string]string{"user": "ada", "strategy": "bearer", "request": "r"})
	})
	quiet := newWorld(b, func(c *mount.Config) { c.Log = slog.New(slog.DiscardHandler) })
	for name, h := range map[string]http.Handler{"echo": e, "mount": quiet} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "https://example.com/things/who", nil)
			r.Header.Set("Authorization", "Bearer ada")
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(&sink{make(http.Header, 8)}, r)
			}
		})
	}
}
