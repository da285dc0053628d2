package email

import (
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The text before and after the content of an element.
var (
	before = map[atom.Atom]string{
		atom.Li: "\n- ", atom.Td: " ", atom.Th: " ",
		atom.Br: "\n", atom.Div: "\n", atom.Tr: "\n", atom.Table: "\n", atom.Ul: "\n", atom.Ol: "\n", atom.Hr: "\n",
		atom.P: "\n\n", atom.H1: "\n\n", atom.H2: "\n\n", atom.H3: "\n\n", atom.H4: "\n\n", atom.Blockquote: "\n\n",
	}
	after = map[atom.Atom]string{
		atom.P: "\n", atom.Div: "\n", atom.H1: "\n", atom.H2: "\n", atom.H3: "\n", atom.H4: "\n",
		atom.Blockquote: "\n", atom.Table: "\n", atom.Ul: "\n", atom.Ol: "\n",
	}
	unread = map[atom.Atom]bool{atom.Head: true, atom.Style: true, atom.Script: true, atom.Template: true, atom.Title: true}
)

// textOf makes a text part from HTML: blocks become lines, links keep their URL, and invisible
// content is omitted.
func textOf(source string) string {
	var out strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(source))
	hidden, link, linkAt := 0, "", 0
	for kind := tokens.Next(); kind != html.ErrorToken; kind = tokens.Next() {
		token := tokens.Token()
		switch tag := token.DataAtom; {
		case kind == html.TextToken && hidden == 0:
			out.WriteString(strings.Map(foldSpace, token.Data))
		case kind == html.StartTagToken && unread[tag]:
			hidden++
		case kind == html.EndTagToken && unread[tag]:
			hidden = max(hidden-1, 0)
		case kind == html.StartTagToken && tag == atom.A:
			link, linkAt = attribute(token, "href"), out.Len()
		case kind == html.EndTagToken && tag == atom.A:
			if said := strings.TrimSpace(out.String()[linkAt:]); absolute(link) && said != link {
				out.WriteString(" (" + link + ")")
			}
			link = ""
		case kind == html.EndTagToken:
			out.WriteString(after[tag])
		case tag == atom.Img:
			out.WriteString(attribute(token, "alt"))
		default:
			out.WriteString(before[tag])
		}
	}
	return tidy(out.String())
}

// foldSpace replaces line breaks of the source by spaces, as HTML does.
func foldSpace(r rune) rune {
	if r == '\n' || r == '\r' || r == '\t' {
		return ' '
	}
	return r
}

// tidy collapses runs of spaces and of empty lines.
func tidy(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" || (len(lines) > 0 && lines[len(lines)-1] != "") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func attribute(token html.Token, name string) string {
	for _, a := range token.Attr {
		if a.Key == name {
			return strings.TrimSpace(a.Val)
		}
	}
	return ""
}

func absolute(link string) bool {
	return strings.HasPrefix(link, "https://") || strings.HasPrefix(link, "http://") || strings.HasPrefix(link, "mailto:")
}

// track replaces the links of HTML by the results of replace, and adds the image pixel, if not
// empty, at the end of the body. Links that are not to be tracked (data-no-track) and those that
// cannot be are left unchanged, as are all other bytes.
func track(source string, replace func(index int, link string) string, pixel string) string {
	var out strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(source))
	image := ""
	if pixel != "" {
		image = `<img src="` + html.EscapeString(pixel) + `" width="1" height="1" alt="">`
	}
	for index := 0; ; {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			return out.String() + image
		}
		raw := string(tokens.Raw())
		token := tokens.Token()
		switch {
		case kind == html.StartTagToken && token.DataAtom == atom.A && trackable(token):
			for i, a := range token.Attr {
				if a.Key == "href" {
					token.Attr[i].Val = replace(index, strings.TrimSpace(a.Val))
				}
			}
			index++
			out.WriteString(token.String())
		case kind == html.EndTagToken && token.DataAtom == atom.Body:
			out.WriteString(image + raw)
			image = ""
		default:
			out.WriteString(raw)
		}
	}
}

func trackable(token html.Token) bool {
	untracked := slices.ContainsFunc(token.Attr, func(a html.Attribute) bool { return a.Key == "data-no-track" })
	return !untracked && redirectable(attribute(token, "href"))
}

// maxLink is the length of the longest link that fits into a token.
const maxLink = (maxToken-macSize*4/3-2)*3/4 - headSize

// redirectable reports whether the kit redirects browsers to link: an absolute web URL that fits
// into a token, without user info or control characters.
func redirectable(link string) bool {
	if len(link) > maxLink || !plain(link) || strings.ContainsAny(link, "\\ \"<>") {
		return false
	}
	u, err := url.Parse(link)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil && u.Opaque == ""
}
