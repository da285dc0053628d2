package email

import (
	"bytes"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io/fs"
	"path"
	"strings"
	texttemplate "text/template"
	"unicode/utf8"
)

// mailTemplate is one parsed pair of files.
type mailTemplate struct {
	text *texttemplate.Template // with the subject; holds the text if hasText
	html *htmltemplate.Template
	body bool
}

// templates are the templates of Config.Templates by name.
type templates map[string]mailTemplate

// unsubscribeMark is the placeholder of the link of {{unsubscribe}}, which differs for every
// message, until the message is composed.
const unsubscribeMark = "https://unsubscribe.invalid/kit"

// parseTemplates parses NAME.txt and NAME.html of a directory. Files whose name begins with an
// underscore are shared by all templates. One of the two files of a mail defines "subject". The
// function unsubscribe returns the unsubscribe link.
func parseTemplates(files fs.FS) (templates, error) {
	parsed := templates{}
	if files == nil {
		return parsed, nil
	}
	texts, htmls, sharedText, sharedHTML := map[string]string{}, map[string]string{}, "", ""
	err := fs.WalkDir(files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		shared := strings.HasPrefix(path.Base(file), "_")
		switch name, kind := strings.TrimSuffix(file, path.Ext(file)), path.Ext(file); {
		case kind == ".txt" && shared:
			sharedText += string(content)
		case kind == ".html" && shared:
			sharedHTML += string(content)
		case kind == ".txt":
			texts[name] = string(content)
		case kind == ".html":
			htmls[name] = string(content)
		}
		return nil
	})
	faults := []error{err}
	functions := map[string]any{"unsubscribe": func() string { return unsubscribeMark }}
	newText := func(name string) *texttemplate.Template {
		return texttemplate.New(name).Option("missingkey=error").Funcs(functions)
	}
	for name, source := range texts {
		t := mailTemplate{body: true}
		t.text, err = newText(name).Parse(sharedText + source)
		faults = append(faults, err)
		parsed[name] = t
	}
	for name, source := range htmls {
		t := parsed[name]
		t.html, err = htmltemplate.New(name).Option("missingkey=error").Funcs(functions).Parse(sharedHTML + source)
		faults = append(faults, err)
		if t.text == nil { // the subject is text, even if the HTML file defines it
			t.text, err = newText(name).Parse(sharedHTML + source)
			faults = append(faults, err)
		}
		parsed[name] = t
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for name, t := range parsed {
		if t.text.Lookup("subject") == nil {
			faults = append(faults, fmt.Errorf(`template %s: no {{define "subject"}}`, name))
		}
	}
	return parsed, errors.Join(faults...)
}

// Preview executes a template with data and returns the content as it would be sent, except that
// links are not tracked and {{unsubscribe}} is a placeholder. Refuses with
// email/template_not_found, template_failed, invalid_header (the subject) and message_too_large.
func (e *Email) Preview(template string, data any) (Content, error) {
	t, ok := e.templates[template]
	if !ok {
		return Content{}, ErrTemplateNotFound
	}
	var c Content
	run := func(into *string, execute func(*capped) error) error {
		out := &capped{limit: e.cfg.MaxMessageBytes}
		err := execute(out)
		if errors.Is(err, ErrMessageTooLarge) {
			return ErrMessageTooLarge
		}
		if err == nil && !utf8.Valid(out.Bytes()) {
			err = errors.New("the output is not UTF-8")
		}
		if err != nil {
			return ErrTemplateFailed.Because(err)
		}
		*into = out.String()
		return nil
	}
	err := run(&c.Subject, func(w *capped) error { return t.text.ExecuteTemplate(w, "subject", data) })
	if err == nil && t.body {
		err = run(&c.Text, func(w *capped) error { return t.text.Execute(w, data) })
	}
	if err == nil && t.html != nil {
		err = run(&c.HTML, func(w *capped) error { return t.html.Execute(w, data) })
	}
	if err != nil {
		return Content{}, err
	}
	c.Subject, c.Text = strings.TrimSpace(c.Subject), strings.TrimSpace(c.Text)
	if err := checkSubject(c.Subject); err != nil {
		return Content{}, err
	}
	return c.withText(), nil
}

// withLink replaces the placeholder of {{unsubscribe}} by the message's own link.
func (c Content) withLink(link string) Content {
	c.Text = strings.ReplaceAll(c.Text, unsubscribeMark, link)
	c.HTML = strings.ReplaceAll(c.HTML, unsubscribeMark, htmltemplate.HTMLEscapeString(link))
	return c
}

// withText makes the text part from HTML if there is none.
func (c Content) withText() Content {
	if strings.TrimSpace(c.Text) == "" {
		c.Text = textOf(c.HTML)
	}
	return c
}

// capped is a buffer with a limit.
type capped struct {
	bytes.Buffer
	limit int
	full  bool
}

func (c *capped) Write(p []byte) (int, error) {
	if c.Len()+len(p) > c.limit {
		c.full = true
		return 0, ErrMessageTooLarge
	}
	return c.Buffer.Write(p)
}
