package email

import (
	"bytes"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io/fs"
	"path"
	"slices"
	"strings"
	texttemplate "text/template"
	"text/template/parse"
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

// parseTemplates parses the files of [Config.Templates].
func parseTemplates(files fs.FS) (templates, error) {
	parsed := templates{}
	if files == nil {
		return parsed, nil
	}
	texts, htmls := map[string]string{}, map[string]string{}
	shared := map[string]string{} // by folder and kind, such as "de/.txt"
	err := fs.WalkDir(files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		switch name, kind := strings.TrimSuffix(file, path.Ext(file)), path.Ext(file); {
		case strings.HasPrefix(path.Base(file), "_"):
			shared[path.Join(path.Dir(file), kind)] += string(content)
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
		t.text, err = newText(name).Parse(sharedWith(shared, name, ".txt") + source)
		faults = append(faults, err)
		parsed[name] = t
	}
	for name, source := range htmls {
		t := parsed[name]
		source = sharedWith(shared, name, ".html") + source
		t.html, err = htmltemplate.New(name).Option("missingkey=error").Funcs(functions).Parse(source)
		faults = append(faults, err)
		if t.text == nil { // the subject is text, even if the HTML file defines it
			t.text, err = newText(name).Parse(source)
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
		for _, missing := range t.missing() {
			faults = append(faults, fmt.Errorf("template %s: it includes %q, which no file of its folder or of one above defines", name, missing))
		}
	}
	return parsed, errors.Join(faults...)
}

// sharedWith returns the shared files of the folder of a template and of those above, outermost
// first.
func sharedWith(shared map[string]string, name, kind string) string {
	dir := path.Dir(name)
	own := shared[path.Join(dir, kind)]
	if dir == "." {
		return own
	}
	return sharedWith(shared, dir, kind) + own
}

// missing returns the names of templates that are included but not defined, which would otherwise
// fail only when a mail is sent.
func (t mailTemplate) missing() (names []string) {
	trees := map[string]*parse.Tree{}
	check := func() {
		for _, tree := range trees {
			names = append(names, undefined(trees, tree.Root)...)
		}
	}
	if t.body {
		for _, part := range t.text.Templates() {
			trees[part.Name()] = part.Tree
		}
		check()
	}
	if t.html != nil {
		clear(trees)
		for _, part := range t.html.Templates() {
			trees[part.Name()] = part.Tree
		}
		check()
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// undefined returns the names of the templates that a node includes and that are not among trees.
func undefined(trees map[string]*parse.Tree, node parse.Node) (names []string) {
	branch := func(b *parse.BranchNode) []string {
		names := undefined(trees, b.List)
		if b.ElseList != nil {
			names = append(names, undefined(trees, b.ElseList)...)
		}
		return names
	}
	switch n := node.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			names = append(names, undefined(trees, child)...)
		}
	case *parse.IfNode:
		names = branch(&n.BranchNode)
	case *parse.RangeNode:
		names = branch(&n.BranchNode)
	case *parse.WithNode:
		names = branch(&n.BranchNode)
	case *parse.TemplateNode:
		if trees[n.Name] == nil {
			names = []string{n.Name}
		}
	}
	return names
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
