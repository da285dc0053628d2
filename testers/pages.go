package testers

import (
	"bytes"
	"html/template"
	"net/http"
	"regexp"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/form"
	"github.com/kitbackend/kit/internal/lazy"
)

// Page is the data of the pages of links.
type Page struct {
	// Page is the kind of the page: confirm, confirmed, opt-in, opt-out, opted-out, closed, expired
	// or invalid.
	Page string
	// Language is the browser's preferred language, such as "de-AT", or "en" if it sends none.
	Language string
	Cohort   string
	// Next is the URL of the button on "confirmed".
	Next string
	Days int
}

// getConfirm shows a page with a button; with ?go=1, which the button adds, it confirms.
func (t *Testers) getConfirm(c *capability.Call) error {
	l, err := t.read(c.Context(), confirmLink, c.Param("token"))
	if err != nil {
		return t.refuse(c, err)
	}
	act := t.confirm
	if !t.acts(c) {
		act = nil
	}
	cohort, m, err := t.follow(c.Context(), l, inApp(c, act != nil), act)
	if err != nil {
		return t.refuse(c, err)
	}
	if m.consent == 0 {
		return t.show(c, http.StatusOK, Page{Page: "confirm", Cohort: cohort.Name, Days: cohort.WindowDays})
	}
	l.kind = optInLink
	next, err := t.url(c.Context(), l)
	if err != nil {
		return err
	}
	return t.show(c, http.StatusOK, Page{Page: "confirmed", Cohort: cohort.Name, Next: next, Days: cohort.WindowDays})
}

// getOptIn shows a page with a button; with ?go=1 it records the opt-in and redirects to the store.
func (t *Testers) getOptIn(c *capability.Call) error {
	l, err := t.read(c.Context(), optInLink, c.Param("token"))
	if err != nil {
		return t.refuse(c, err)
	}
	act := t.optIn
	if !t.acts(c) {
		act = nil
	}
	cohort, _, err := t.follow(c.Context(), l, inApp(c, act != nil), act)
	if err != nil {
		return t.refuse(c, err)
	}
	if act == nil {
		return t.show(c, http.StatusOK, Page{Page: "opt-in", Cohort: cohort.Name, Days: cohort.WindowDays})
	}
	c.Writer().Header().Set("Cache-Control", "no-store")
	c.Writer().Header().Set("Location", cohort.StoreURL)
	c.Writer().WriteHeader(http.StatusSeeOther)
	return nil
}

// acts reports whether a request is to take effect.
func (t *Testers) acts(c *capability.Call) bool {
	return c.Request().Method == http.MethodGet && (t.cfg.ActOnGet || c.Query("go") == "1")
}

// inApp returns the user of a link that was opened in the app: with an access token, not with a
// cookie, because any page can make a browser send the cookie.
func inApp(c *capability.Call, acts bool) string {
	if !acts || c.Caller.Strategy != capability.StrategyBearer {
		return ""
	}
	return c.Caller.UserID
}

func (t *Testers) getOptOut(c *capability.Call) error {
	if _, err := t.read(c.Context(), optOutLink, c.Param("token")); err != nil {
		return t.refuse(c, err)
	}
	return t.show(c, http.StatusOK, Page{Page: "opt-out"})
}

// postOptOut opts out if it was sent by the button of the page or by a mail program according to
// RFC 8058. It responds to any other request with the page.
func (t *Testers) postOptOut(c *capability.Call) error {
	l, err := t.read(c.Context(), optOutLink, c.Param("token"))
	if err != nil {
		return t.refuse(c, err)
	}
	values, err := form.Read(c)
	if err != nil {
		return err
	}
	if values.Get("List-Unsubscribe") != "One-Click" && values.Get("do") != "opt-out" {
		return t.show(c, http.StatusOK, Page{Page: "opt-out"})
	}
	if err := t.withdraw(c.Context(), l.hash); err != nil {
		return err
	}
	return t.show(c, http.StatusOK, Page{Page: "opted-out"})
}

// refuse shows refusals of links as a page, because people open them in a browser. Other errors are
// returned unchanged.
func (t *Testers) refuse(c *capability.Call, err error) error {
	refusal := capability.AsError(err)
	switch {
	case ErrInvalidToken.Is(refusal) && refusal.Message == errExpired.Message:
		return t.show(c, http.StatusNotFound, Page{Page: "expired"})
	case ErrInvalidToken.Is(refusal):
		return t.show(c, http.StatusNotFound, Page{Page: "invalid"})
	case ErrCohortClosed.Is(refusal):
		return t.show(c, http.StatusConflict, Page{Page: "closed"})
	}
	return err
}

func (t *Testers) show(c *capability.Call, status int, p Page) error {
	var out bytes.Buffer
	p.Language = language(c.Request().Header.Get("Accept-Language"))
	if err := t.pages.Execute(&out, p); err != nil {
		return err
	}
	h := c.Writer().Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self' https:; frame-ancestors 'none'; base-uri 'none'")
	c.Writer().WriteHeader(status)
	_, _ = c.Writer().Write(out.Bytes()) // the client has disconnected
	return nil
}

var languageForm = regexp.MustCompile(`^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,3}$`)

// language returns the first language of an Accept-Language field.
func language(accept string) string {
	first, _, _ := strings.Cut(accept, ",")
	first, _, _ = strings.Cut(first, ";")
	if first = strings.TrimSpace(first); languageForm.MatchString(first) {
		return first
	}
	return "en"
}

var builtIn lazy.Value[*template.Template]

// builtInPages returns the built-in pages. Their forms submit to the current URL, so that they need
// not contain it.
func builtInPages() *template.Template {
	return builtIn.Get(func() *template.Template { return template.Must(template.New("").Parse(builtInText)) })
}

const builtInText = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Closed test</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 30rem; margin: 15vh auto; padding: 0 1.5rem }
h1 { font-size: 1.4rem; overflow-wrap: anywhere } strong { overflow-wrap: anywhere }
button { font: inherit; padding: .6rem 1.1rem; border-radius: 6px; border: 1px solid #1f4fd8; background: #1f4fd8; color: #fff; cursor: pointer }
</style></head><body>
{{if eq .Page "confirm"}}<h1>Test {{.Cohort}}?</h1>
<p>You were invited to a closed test of about {{.Days}} days. You can leave at any time by the link in the mail.</p>
<form method="get"><button name="go" value="1">Yes, I will test</button></form>
{{else if eq .Page "confirmed"}}<h1>Thank you</h1>
<p>You said yes to testing <strong>{{.Cohort}}</strong>. The next step is to join the test in the store.</p>
<form method="get" action="{{.Next}}"><button name="go" value="1">Join in the store</button></form>
{{else if eq .Page "opt-in"}}<h1>Join the test of {{.Cohort}}</h1>
<p>This leads to the store, where you become a tester. We note that you went there; the store does not tell us more.</p>
<form method="get"><button name="go" value="1">Go to the store</button></form>
{{else if eq .Page "opt-out"}}<h1>Leave the test?</h1>
<p>You will get no more mails about closed tests from us. This cannot be undone by us. To get rid of the app as well, leave the test in the store.</p>
<form method="post"><button name="do" value="opt-out">Leave</button></form>
{{else if eq .Page "opted-out"}}<h1>You have left</h1>
<p>We will not mail you about closed tests again.</p>
{{else if eq .Page "closed"}}<h1>This test is over</h1>
<p>Thank you for your interest. There is nothing to do.</p>
{{else if eq .Page "expired"}}<h1>This link has expired</h1>
<p>It worked for a while only. (testers/invalid_token)</p>
{{else}}<h1>This link does not work</h1>
<p>It is not one of ours, there is a newer one, or it was changed on the way. (testers/invalid_token)</p>
{{end}}</body></html>`

// maxForm limits the body of an opt-out.
const maxForm = 4 << 10
