package email

import (
	"bytes"
	"cmp"
	"context"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/form"
	"github.com/kitbackend/kit/internal/lazy"
	"github.com/kitbackend/kit/internal/plainpage"
	"github.com/kitbackend/kit/internal/rate"
)

// pixel is a transparent GIF of one pixel.
var pixel = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")

// getClick redirects the reader to the target of the link, which is only in the signed token. An
// expired token still redirects.
func (e *Email) getClick(c *capability.Call) error {
	t, err := e.tokens.read(c.Context(), clickToken, c.Param("token"))
	if err != nil || !redirectable(t.payload) {
		return e.refuse(c, err)
	}
	if now := e.host.Now(); now.Unix() <= int64(t.expires) {
		e.note(c, t, Event{Type: "clicked", URL: t.payload})
	}
	h := c.Writer().Header()
	h.Set("Location", t.payload)
	c.Writer().WriteHeader(http.StatusFound)
	return nil
}

// getOpen responds with the image even for an invalid token, so that the response reveals nothing.
func (e *Email) getOpen(c *capability.Call) error {
	if t, err := e.tokens.read(c.Context(), openToken, c.Param("token")); err == nil && e.host.Now().Unix() <= int64(t.expires) {
		e.note(c, t, Event{Type: "opened"})
	}
	c.Writer().Header().Set("Content-Type", "image/gif")
	c.Writer().Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
	_, _ = c.Writer().Write(pixel) // a disconnected reader needs no error
	return nil
}

// note records an open or a click. The reader gets the page even if that fails.
func (e *Email) note(c *capability.Call, t token, event Event) {
	now := e.host.Now()
	event.Detail, event.Machine = e.machine(c, t.jobID, now)
	if err := e.store.insertEvent(c.Context(), t.jobID, event, now); err != nil {
		e.host.Log.WarnContext(c.Context(), "email: event not recorded", "job", t.jobID, "error", err)
	}
}

// machine guesses whether a program followed the link, and returns the reason.
func (e *Email) machine(c *capability.Call, jobID string, now time.Time) (reason string, machine bool) {
	agent := c.Request().UserAgent()
	switch {
	case agent == "":
		return "no user agent", true
	case agent == "Mozilla/5.0":
		return "mail privacy proxy", true
	case strings.Contains(agent, "GoogleImageProxy"), strings.Contains(agent, "YahooMailProxy"):
		return "image proxy", true
	}
	for _, word := range []string{"bot", "crawl", "spider", "preview", "scan", "curl", "python", "go-http-client"} {
		if strings.Contains(strings.ToLower(agent), word) {
			return "robot", true
		}
	}
	job, found, err := e.store.job(c.Context(), jobID)
	if err == nil && found && (job.SentAt == nil || now.Sub(job.SentAt.Time) < 2*time.Second) {
		return "within two seconds", true
	}
	return "", false
}

// getUnsubscribe asks for confirmation first, because programs follow links.
func (e *Email) getUnsubscribe(c *capability.Call) error {
	t, err := e.visit(c)
	if err != nil {
		return e.refuse(c, err)
	}
	if !e.cfg.UnsubscribeOnGet {
		return e.show(c, http.StatusOK, view{Page: "confirm", Address: t.payload})
	}
	if err := e.unsubscribe(c.Context(), t, ScopeList); err != nil {
		return err
	}
	return e.show(c, http.StatusOK, view{Page: "done", Address: t.payload})
}

// postUnsubscribe unsubscribes a reader: for a mail program that sends the body of RFC 8058, or for
// the button of the page. Any other request gets the page.
func (e *Email) postUnsubscribe(c *capability.Call) error {
	t, err := e.visit(c)
	if err != nil {
		return e.refuse(c, err)
	}
	values, err := form.Read(c)
	if err != nil {
		return err
	}
	switch {
	case values.Get("List-Unsubscribe") == "One-Click":
		if err := e.unsubscribe(c.Context(), t, ScopeList); err != nil {
			return err
		}
		c.Writer().WriteHeader(http.StatusOK)
		return nil
	case values.Get("do") == "unsubscribe", values.Get("do") == "unsubscribe-all":
		scope := ScopeList
		if values.Get("do") == "unsubscribe-all" {
			scope = ScopeAll
		}
		if err := e.unsubscribe(c.Context(), t, scope); err != nil {
			return err
		}
		return e.show(c, http.StatusOK, view{Page: "done", Address: t.payload, All: scope == ScopeAll})
	case values.Get("do") == "resubscribe":
		return e.resubscribe(c, t)
	}
	return e.show(c, http.StatusOK, view{Page: "confirm", Address: t.payload})
}

// visit verifies the token of an unsubscribe link, after the rate limit of the client.
func (e *Email) visit(c *capability.Call) (token, error) {
	ip := ""
	if origin := capability.RequestInfoOf(c.Context()); origin != nil {
		ip = origin.IP
	}
	if _, ok := e.visits.Allow(rate.AddressKey(ip)); !ok {
		return token{}, capability.ErrRateLimited
	}
	return e.tokens.read(c.Context(), unsubscribeToken, c.Param("token"))
}

func (e *Email) unsubscribe(ctx context.Context, t token, scope Scope) error {
	return e.host.DB.InTx(ctx, func(ctx context.Context) error {
		key, err := e.subject(ctx, t.payload)
		if err != nil {
			return err
		}
		job, found, err := e.store.lockJob(ctx, t.jobID)
		if err != nil {
			return err
		}
		row, userID := suppressionRow{key: key, scope: scope, reason: ReasonUnsubscribed, source: "link"}, ""
		if found {
			row.jobID = job.ID
		}
		if job.UserID != nil {
			userID = *job.UserID
		}
		added, err := e.suppress(ctx, row, userID)
		if err != nil || !added {
			return err
		}
		return e.store.insertEvent(ctx, t.jobID, Event{Type: "unsubscribed"}, e.host.DB.Now(ctx))
	})
}

// resubscribe shows the current state: a complaint or an operator's suppression remains.
func (e *Email) resubscribe(c *capability.Call, t token) error {
	key, err := e.subject(c.Context(), t.payload)
	if err != nil {
		return err
	}
	if err := e.store.resubscribe(c.Context(), key); err != nil {
		return err
	}
	held, err := e.store.suppressionsOf(c.Context(), key, e.host.Now())
	if err != nil {
		return err
	}
	if len(held) > 0 {
		return e.show(c, http.StatusOK, view{Page: "done", Address: t.payload, All: held[0].Scope == ScopeAll})
	}
	return e.show(c, http.StatusOK, view{Page: "back", Address: t.payload})
}

// view is the data of the pages.
type view struct {
	Page    string
	Address string
	All     bool
	Code    string
	// App is the application's name, and Home the target of the link back.
	App, Home string
}

// refuse responds to an invalid token with a page, because people follow these links; err is nil
// for an invalid target. It returns other errors.
func (e *Email) refuse(c *capability.Call, err error) error {
	if err != nil && !ErrInvalidToken.Is(capability.AsError(err)) {
		return err
	}
	return e.show(c, http.StatusNotFound, view{Page: "invalid", Code: ErrInvalidToken.Code})
}

func (e *Email) show(c *capability.Call, status int, v view) error {
	var out bytes.Buffer
	v.App, v.Home = e.appName(), e.host.BaseURL.Path+"/"
	if err := pageTemplate().Execute(&out, v); err != nil {
		return err
	}
	h := c.Writer().Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	c.Writer().WriteHeader(status)
	_, _ = c.Writer().Write(out.Bytes()) // a disconnected reader needs no error
	return nil
}

// appName returns the sender's name in mails, or else the host's name.
func (e *Email) appName() string {
	return cmp.Or(e.from.name, e.host.BaseURL.Hostname())
}

var pages lazy.Value[*template.Template]

// pageTemplate returns the template of the pages. Their forms post to the current URL, so that the
// template does not need it.
func pageTemplate() *template.Template {
	return pages.Get(func() *template.Template { return template.Must(template.New("").Parse(pageText)) })
}

const pageText = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Mail from {{.App}}</title><style>` + plainpage.Style + `</style></head>
<body><header><a href="{{.Home}}">{{.App}}</a></header><main>
{{if eq .Page "confirm"}}<h1>Unsubscribe?</h1>
<p>Newsletters and announcements of {{.App}} will no longer go to <strong>{{.Address}}</strong>. Mail you ask for, such as a password reset, still will.</p>
<form method="post"><button name="do" value="unsubscribe">Unsubscribe</button><button name="do" value="unsubscribe-all">Stop all mail</button></form>
{{else if eq .Page "done"}}<h1>You are unsubscribed</h1>
<p>{{if .All}}No mail of any kind{{else}}No newsletters and announcements{{end}} of {{.App}} will go to <strong>{{.Address}}</strong> any more.</p>
<form method="post"><button name="do" value="resubscribe">Subscribe again</button></form>
{{else if eq .Page "back"}}<h1>You are subscribed again</h1>
<p>Mail of {{.App}} will go to <strong>{{.Address}}</strong> as before.</p>
<form method="post"><button name="do" value="unsubscribe">Unsubscribe</button></form>
{{else}}<h1 class="failed">This link does not work</h1>
<p>It is not one of ours, or it was changed on the way. Open it from the mail again. ({{.Code}})</p>
{{end}}<footer><a href="{{.Home}}">Back to {{.App}}</a></footer></main></body></html>`
