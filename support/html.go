package support

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// htmlText is the visible text of HTML, with quotations marked by ">".
type htmlText struct {
	text     string
	warnings []string
}

// blocks are the elements that begin a new line.
var blocks = map[atom.Atom]bool{
	atom.P: true, atom.Div: true, atom.Br: true, atom.Li: true, atom.Tr: true, atom.Table: true, atom.Ul: true, atom.Ol: true,
	atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.Hr: true, atom.Blockquote: true, atom.Pre: true,
}

// unread are the elements whose text is not displayed.
var unread = map[atom.Atom]bool{
	atom.Head: true, atom.Style: true, atom.Script: true, atom.Template: true, atom.Title: true, atom.Noscript: true,
}

var void = map[atom.Atom]bool{
	atom.Br: true, atom.Img: true, atom.Hr: true, atom.Input: true, atom.Meta: true, atom.Link: true, atom.Area: true,
	atom.Base: true, atom.Col: true, atom.Embed: true, atom.Source: true, atom.Track: true, atom.Wbr: true,
}

// htmlReader converts tokens to lines.
type htmlReader struct {
	out        strings.Builder
	line       strings.Builder
	quote      int
	hidden     atom.Atom // the element that hides its content, and the nesting depth
	hiddenBy   string
	depth      int
	link       string
	linkText   strings.Builder
	suspicious bool
	mismatch   bool
}

// maxQuote bounds the marked nesting of quotations.
const maxQuote = 10

func readHTML(source string) htmlText {
	r := htmlReader{}
	tokens := html.NewTokenizer(strings.NewReader(source))
	tokens.SetMaxBuf(maxDecoded + 1)
	for kind := tokens.Next(); kind != html.ErrorToken; kind = tokens.Next() {
		r.token(kind, tokens.Token())
	}
	r.newline()
	result := htmlText{text: r.out.String()}
	if r.suspicious {
		result.warnings = append(result.warnings, warnHidden)
	}
	if r.mismatch {
		result.warnings = append(result.warnings, warnLinkMismatch)
	}
	return result
}

func (r *htmlReader) token(kind html.TokenType, token html.Token) {
	tag := token.DataAtom
	if r.depth > 0 {
		switch {
		case kind == html.StartTagToken && token.Data == r.hiddenBy:
			r.depth++
		case kind == html.EndTagToken && token.Data == r.hiddenBy:
			r.depth--
		case kind == html.TextToken && r.hidden == 0 && strings.TrimSpace(token.Data) != "":
			r.suspicious = true
		}
		return
	}
	switch kind {
	case html.TextToken:
		r.write(token.Data)
	case html.StartTagToken, html.SelfClosingTagToken:
		r.start(kind, token, tag)
	case html.EndTagToken:
		r.end(tag)
	default:
	}
}

func (r *htmlReader) start(kind html.TokenType, token html.Token, tag atom.Atom) {
	if kind == html.StartTagToken && !void[tag] {
		if unread[tag] {
			r.hide(token.Data, tag)
			return
		}
		if concealed(token) {
			r.hide(token.Data, 0)
			return
		}
	}
	if blocks[tag] {
		r.newline()
	}
	switch tag {
	case atom.Blockquote:
		r.quote = min(r.quote+1, maxQuote)
	case atom.Li:
		r.line.WriteString("- ")
	case atom.Td, atom.Th:
		r.line.WriteString(" ")
	case atom.Img:
		r.write(attribute(token, "alt"))
	case atom.A:
		r.link = attribute(token, "href")
		r.linkText.Reset()
	default:
	}
}

func (r *htmlReader) hide(name string, tag atom.Atom) { r.hidden, r.hiddenBy, r.depth = tag, name, 1 }

func (r *htmlReader) end(tag atom.Atom) {
	if blocks[tag] {
		r.newline()
	}
	switch tag {
	case atom.Blockquote:
		r.quote = max(r.quote-1, 0)
	case atom.A:
		r.closeLink()
	default:
	}
}

// closeLink adds the address of a link to the text, and warns of a link whose text shows another
// address.
func (r *htmlReader) closeLink() {
	link, shown := r.link, strings.TrimSpace(r.linkText.String())
	r.link = ""
	target, err := url.Parse(link)
	if err != nil || (target.Scheme != "https" && target.Scheme != "http") {
		return
	}
	if shown != link {
		r.line.WriteString(" (" + clip(link, 500) + ")")
	}
	said, err := url.Parse(shown)
	if err == nil && said.Host != "" && !strings.EqualFold(strings.TrimPrefix(said.Hostname(), "www."), strings.TrimPrefix(target.Hostname(), "www.")) {
		r.mismatch = true
	}
}

func (r *htmlReader) write(text string) {
	if r.link != "" && r.linkText.Len() < 500 {
		r.linkText.WriteString(clip(text, 500))
	}
	r.line.WriteString(strings.Map(func(c rune) rune {
		switch c {
		case '\n', '\r', '\t', 0xa0:
			return ' '
		case 0x200b, 0x200c, 0x200d, 0x2060, 0xfeff, 0xad:
			return -1
		}
		return c
	}, text))
}

func (r *htmlReader) newline() {
	text := strings.Join(strings.Fields(r.line.String()), " ")
	r.line.Reset()
	if text == "" {
		if out := r.out.String(); out != "" && !strings.HasSuffix(out, "\n\n") {
			r.out.WriteByte('\n')
		}
		return
	}
	if r.quote > 0 {
		r.out.WriteString(strings.Repeat(">", r.quote) + " ")
	}
	r.out.WriteString(text + "\n")
}

// concealed reports whether an element is deliberately invisible.
func concealed(token html.Token) bool {
	for _, a := range token.Attr {
		switch a.Key {
		case "hidden":
			return true
		case "style":
			style := strings.ToLower(strings.Join(strings.Fields(a.Val), ""))
			for _, trick := range []string{"display:none", "visibility:hidden", "font-size:0", "opacity:0;", "max-height:0", "mso-hide:all"} {
				if strings.Contains(style+";", trick) && !strings.Contains(style, trick+".") {
					return true
				}
			}
		}
	}
	return false
}

func attribute(token html.Token, name string) string {
	for _, a := range token.Attr {
		if a.Key == name {
			return strings.TrimSpace(a.Val)
		}
	}
	return ""
}
