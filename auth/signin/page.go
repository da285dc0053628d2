package signin

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/internal/plainpage"
)

// page is a plain page with at most one button, which posts to the address the
// page was opened at, and at most one field, for a new password.
type page struct {
	Title, Text string
	// Code is the code of a refusal, in small print.
	Code string
	// Button is the label of the button; empty for none.
	Button string
	// Password is the label of the field; empty for none.
	Password string
	// Failed marks the page of a failure.
	Failed bool
	// App is the application's name, and Home the address of the link back.
	App, Home string
	// targets are the addresses to which the button may lead.
	targets []string
}

// html writes the page. It uses no template: html/template looks methods up by name, so a program
// that links it keeps the exported methods of all its types.
func (p page) html() string {
	var b strings.Builder
	write := func(markup string, texts ...string) {
		for i, part := range strings.Split(markup, "%") {
			if i > 0 {
				b.WriteString(html.EscapeString(texts[i-1]))
			}
			b.WriteString(part)
		}
	}
	heading := "<h1>"
	if p.Failed {
		heading = `<h1 class="failed">`
	}
	b.WriteString(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">
`)
	write("<title>% – %</title>", p.Title, p.App)
	b.WriteString("<style>" + plainpage.Style + "</style></head>\n")
	write(`<body><header><a href="%">%</a></header>`+"\n<main>"+heading+"%</h1><p>%</p>", p.Home, p.App, p.Title, p.Text)
	if p.Button != "" {
		b.WriteString(`<form method="post">`)
		if p.Password != "" {
			write(`<label>% <input type="password" name="newPassword" autocomplete="new-password" required></label>`, p.Password)
		}
		write(`<button>%</button></form>`, p.Button)
	}
	if p.Code != "" {
		write("<p><small>%</small></p>", p.Code)
	}
	write(`<footer><a href="%">Back to %</a></footer></main></body></html>`+"\n", p.Home, p.App)
	return b.String()
}

var pagePolicy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; style-src 'sha256-" + styleHash() + "'; form-action 'self'"

func styleHash() string {
	sum := sha256.Sum256([]byte(plainpage.Style))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// errorCode is the form of codes that may be repeated on a page.
var errorCode = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// page returns HTML. Its address holds a token, so the referrer policy is same-origin, with which
// browsers still send the Origin when the button posts.
func (c *call) page(status int, p page) (any, error) {
	p.App, p.Home = c.l.auth.AppName(), c.l.host.BaseURL.EscapedPath()+"/"
	policy := pagePolicy
	for _, target := range p.targets { // the policy must also allow the redirect after a form's post
		if origin := originOfURL(target); origin != "" {
			policy += " " + origin
		}
	}
	h := c.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	_, _ = io.WriteString(c.w, p.html()) // the client has disconnected
	return written{}, nil
}

// originOfURL returns the origin of an absolute target as a policy's source, or "".
func originOfURL(target string) string {
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Scheme == "":
		return ""
	case u.Scheme != "http" && u.Scheme != "https":
		return u.Scheme + ":"
	case strings.ContainsAny(u.Host, " ;,'\""):
		return ""
	default:
		return u.Scheme + "://" + u.Host
	}
}

// mask shortens an address to a form that its owner recognizes.
func mask(address string) string {
	name, domain, ok := strings.Cut(address, "@")
	if !ok || name == "" {
		return ""
	}
	first := []rune(name)[0]
	return string(first) + "***@" + domain
}

// fail responds with the refusal of a link that was opened in a browser: a script gets it as JSON,
// a browser is redirected to the target for errors or gets a page.
func (c *call) fail(err error, target string) (any, error) {
	refusal := auth.LibraryRefusal(err)
	switch {
	case refusal.Status >= http.StatusInternalServerError:
		return nil, err
	case target != "":
		return c.redirect(withQuery(target, "error", refusal.Code))
	case c.fromScript():
		return nil, err
	default:
		return c.page(refusal.Status, page{
			Title: "This link does not work", Text: "It has been used, it is too old, or it was not copied in full. Ask for another one.",
			Code: refusal.Code, Failed: true,
		})
	}
}
