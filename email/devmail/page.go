package devmail

import (
	"bytes"
	"html/template"
	"net/http"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/lazy"
	"github.com/kitbackend/kit/internal/local"
)

// Routes returns the routes of the mailbox under the kit's internal prefix, in development only.
func (b *Mailbox) Routes() []capability.Route {
	if !b.host.Development() {
		return nil
	}
	row := func(path, summary string, show func(*capability.Call) error) capability.Route {
		return capability.Route{
			Method: http.MethodGet, Path: path, Summary: summary,
			Guard:    capability.Public(capability.DevelopmentOnly),
			Refusals: []*capability.Error{capability.ErrNotFound},
			Handle: capability.Raw(func(c *capability.Call) error {
				if !local.FromThisMachine(c.Request()) || local.FromOtherSite(c.Request()) || !b.host.DevelopmentAllowed(c.Request()) {
					return capability.ErrNotFound
				}
				return show(c)
			}),
		}
	}
	return capability.Mount(b.host.InternalPrefix,
		row("/mailbox", "Mail that was kept instead of sent.", b.getList),
		row("/mailbox/:id", "One kept mail.", b.getMail),
		row("/mailbox/:id/html", "The HTML of one kept mail, for a frame.", b.getHTML),
	)
}

func (b *Mailbox) getList(c *capability.Call) error {
	mails, err := b.newest(c.Context())
	if err != nil {
		return err
	}
	return b.write(c, page(&listPage, listText), mails)
}

func (b *Mailbox) getMail(c *capability.Call) error {
	mail, ok, err := b.mail(c.Context(), c.Param("id"))
	if err != nil {
		return err
	}
	if !ok {
		return capability.ErrNotFound
	}
	return b.write(c, page(&mailPage, mailText), mail)
}

// framePolicy prevents a mail from running scripts and loading anything; its links open in a new
// tab.
const framePolicy = "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'"

func (b *Mailbox) getHTML(c *capability.Call) error {
	mail, ok, err := b.mail(c.Context(), c.Param("id"))
	if err != nil {
		return err
	}
	if !ok {
		return capability.ErrNotFound
	}
	h := c.Writer().Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", framePolicy)
	h.Set("X-Frame-Options", "SAMEORIGIN")
	_, _ = c.Writer().Write([]byte(`<base target="_blank">` + mail.HTML)) // a disconnected browser needs no error
	return nil
}

// view is the data of the pages.
type view struct {
	Base string
	Data any
}

func (b *Mailbox) write(c *capability.Call, page *template.Template, data any) error {
	var out bytes.Buffer
	if err := page.Execute(&out, view{b.host.BaseURL.Path + b.host.InternalPrefix + "/mailbox", data}); err != nil {
		return err
	}
	h := c.Writer().Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	_, _ = c.Writer().Write(out.Bytes()) // a disconnected browser needs no error
	return nil
}

const layout = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{block "title" .}}Mailbox{{end}}</title>
<style>
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); --soft: color-mix(in srgb, currentColor 62%, transparent) }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.3rem; overflow-wrap: anywhere } h2 { font-size: 1rem; margin-top: 2rem }
a { color: inherit } ul { padding-left: 1.2rem } li { overflow-wrap: anywhere }
table { width: 100%; border-collapse: collapse } td, th { text-align: left; padding: .5rem .5rem .5rem 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere }
th { font-weight: 500; color: var(--soft) } time, .soft { color: var(--soft) } .soft time { color: inherit }
pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: 1rem; border: 1px solid var(--line); border-radius: 6px }
@media (max-width: 40rem) { body { margin: 1rem auto } thead { display: none } tr { display: block; padding: .6rem 0; border-bottom: 1px solid var(--line) }
td, th { display: block; padding: 0; border: 0 } td a { display: inline-block; padding: .3rem 0 } iframe { height: 24rem } }
iframe { width: 100%; height: 32rem; border: 1px solid var(--line); border-radius: 6px; background: #fff; color-scheme: light }
</style></head><body><main>{{template "body" .}}</main></body></html>`

// page parses the template of a page once.
func page(made *lazy.Value[*template.Template], text string) *template.Template {
	return made.Get(func() *template.Template {
		return template.Must(template.Must(template.New("layout").Parse(layout)).Parse(text))
	})
}

var listPage, mailPage lazy.Value[*template.Template]

const listText = `{{define "body"}}<h1>Mailbox</h1>
<p class="soft">Mail of this development server. Nothing here was sent.</p>
{{if .Data}}<table><thead><tr><th>To</th><th>Subject</th><th>Time (UTC)</th></tr></thead><tbody>
{{range .Data}}<tr><td>{{.To}}</td><td><a href="{{$.Base}}/{{.ID}}">{{or .Subject "(no subject)"}}</a></td><td><time>{{.KeptAt.Format "2006-01-02 15:04:05"}}</time></td></tr>
{{end}}</tbody></table>{{else}}<p>No mail yet.</p>{{end}}{{end}}`

const mailText = `{{define "title"}}{{.Data.Subject}} · Mailbox{{end}}{{define "body"}}{{with .Data}}
<p><a href="{{$.Base}}">Mailbox</a></p>
<h1>{{or .Subject "(no subject)"}}</h1>
<p class="soft">to {{.To}} · <time>{{.KeptAt.Format "2006-01-02 15:04:05"}} UTC</time></p>
{{if .Links}}<h2>Links</h2><ul>{{range .Links}}<li><a href="{{.}}" target="_blank" rel="noopener noreferrer">{{.}}</a></li>{{end}}</ul>{{end}}
{{if .HTML}}<h2>HTML</h2><iframe title="The mail as HTML" sandbox="allow-popups allow-popups-to-escape-sandbox" src="{{$.Base}}/{{.ID}}/html"></iframe>{{end}}
<h2>Text</h2><pre>{{.Text}}</pre>
{{if .Attachments}}<h2>Attachments</h2><ul>{{range .Attachments}}<li>{{.}}</li>{{end}}</ul>{{end}}
<h2>Headers</h2><table>{{range .Headers}}<tr><th>{{.Name}}</th><td>{{.Value}}</td></tr>{{end}}</table>
{{end}}{{end}}`
