package mount

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/refusal"
)

// handle runs the row's handler for an admitted caller.
func (x *exchange) handle(call *capability.Call) error {
	h := x.row.entry.Route.Handle
	if h.IsRaw() {
		return h.Raw(call)
	}
	if x.row.entry.Route.Idempotent {
		key, err := call.IdempotencyKey()
		if err != nil {
			return x.refused(err)
		}
		if key != "" {
			return x.once(key, call)
		}
	}
	out, err := h.Reply(call)
	if err := x.decided(err); err != nil {
		return err
	}
	return x.respond(h.StatusOf(out), out)
}

// decided records the outcome of a machine's call in the audit trail before it is returned.
func (x *exchange) decided(err error) error {
	if err != nil || !x.machineRow() {
		return x.refused(err)
	}
	return x.record(nil)
}

func (x *exchange) machineRow() bool {
	return x.row != nil && x.row.entry.Route.Guard.Strategy() == capability.StrategyControlPlane
}

// refused records the refusal of a verified machine's call in the audit trail. A call that cannot
// be recorded is refused with kit/unavailable.
func (x *exchange) refused(err error) error {
	if err == nil || !x.machineRow() || x.origin.Caller.KeyID == "" {
		return err
	}
	if failed := x.record(capability.AsError(err)); failed != nil {
		return failed
	}
	return err
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// respond writes a value as JSON, or nothing when there is none.
func (x *exchange) respond(status int, out any) error {
	if out == nil {
		x.w.WriteHeader(status)
		return nil
	}
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	if err := refusal.Encode(buf, out); err != nil {
		return err
	}
	return x.write(status, buf.Bytes())
}

// counted is the size up to which net/http itself sets Content-Length, which saves an entry in the
// header map.
const counted = 2048

var jsonType = []string{"application/json"}

func (x *exchange) write(status int, body []byte) error {
	h := x.w.Header()
	h["Content-Type"] = jsonType
	if len(body) > counted {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // the client has disconnected
	return nil
}

// statusLeft is the status in the log and the metrics, as in nginx, of a request whose client
// disconnected before the response and which was canceled for that.
const statusLeft = 499

// refuse responds with an error. An error that is not a refusal is logged and sent as kit/internal,
// without its text.
func (x *exchange) refuse(err error) {
	r := capability.AsError(err)
	x.refusal = r
	left := refusal.Left(x.r.Context(), err)
	switch {
	case errors.Is(err, errPanicked): // logged with its stack
	case r.Status >= http.StatusInternalServerError && !left:
		x.log(slog.LevelError, "failed", slog.String("code", r.Code), slog.String("error", err.Error()))
	case x.unproven(r): // the operator corrects a secret or a clock
		x.log(slog.LevelInfo, "refused", slog.String("code", r.Code), slog.String("error", err.Error()))
	default:
		x.log(slog.LevelDebug, "refused", slog.String("code", r.Code), slog.String("error", err.Error()))
	}
	if x.w.Committed {
		x.torn = x.w.Size > 0
	} else {
		x.writeRefusal(r)
	}
	if left { // no failure of the kit, and the client has disconnected
		x.w.Status, x.refusal = statusLeft, nil
	}
}

// unproven reports whether a refusal is that of a webhook whose proof does not verify.
func (x *exchange) unproven(r *capability.Error) bool {
	return r.Status == http.StatusUnauthorized && x.row != nil &&
		x.row.entry.Route.Guard.Strategy() == capability.StrategySignedWebhook
}

func (x *exchange) writeRefusal(r *capability.Error) {
	refusal.Header(x.w.Header(), r)
	_ = x.write(r.Status, x.refusalBody(r))
}

func (x *exchange) refusalBody(r *capability.Error) []byte {
	if x.row != nil && x.row.entry.Route.RefusalBody != nil {
		if body := x.row.entry.Route.RefusalBody(x.w.Header(), r, x.origin.RequestID); body != nil {
			buf := new(bytes.Buffer)
			_ = refusal.Encode(buf, body)
			return buf.Bytes()
		}
	}
	return refusal.Body(r, x.origin.RequestID)
}

// Header values that every response shares; a handler may replace them.
var (
	noSniff    = []string{"nosniff"}
	noStore    = []string{"no-store"}
	noReferrer = []string{"no-referrer"}
	noFrame    = []string{"DENY"}
	noContent  = []string{"default-src 'none'; frame-ancestors 'none'"}
	sameSite   = []string{"same-origin"}
	hsts       = []string{"max-age=31536000"}
)

// harden sets the headers of every response.
func (x *exchange) harden() {
	h := x.w.Header()
	h["X-Request-Id"] = []string{x.origin.RequestID}
	h["X-Content-Type-Options"] = noSniff
	h["Cache-Control"] = noStore
	h["Referrer-Policy"] = noReferrer
	h["X-Frame-Options"] = noFrame
	h["Content-Security-Policy"] = noContent
	h["Cross-Origin-Resource-Policy"] = sameSite
	if x.m.secure {
		h["Strict-Transport-Security"] = hsts
	}
}
