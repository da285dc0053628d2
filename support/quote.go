package support

import (
	"regexp"
	"strings"
)

// attributions matches the lines that mail programs write before a quotation, in many languages.
var attributions = regexp.MustCompile(`(?i)^\s*(` + strings.Join([]string{
	`on\b.{4,300}\bwrote`, `am\b.{4,300}\bschrieb.{0,200}`, `.{2,200}\bschrieb am\b.{4,200}`, `le\b.{4,300}\ba écrit`,
	`el\b.{4,300}\bescribió`, `il\b.{4,300}\bha scritto`, `em\b.{4,300}\bescreveu`, `op\b.{4,300}\bschreef.{0,200}`,
	`den\b.{4,300}\b(skrev|skrifade).{0,200}`, `dne\b.{4,300}\bnapsal.{0,20}`, `w dniu\b.{4,300}\bnapisał.{0,20}`,
	`.{4,300}\bkirjoitti`, `.{4,300}\byazdı`, `.{4,300}\bпишет`, `.{4,300}написал(а)?`, `.{4,300}写道`, `.{4,300}のメール`, `.{4,300}님이 작성`,
}, "|") + `)\s*[:：]\s*$`)

// separators matches the lines after which everything is quoted.
var separators = regexp.MustCompile(`(?i)^\s*(-{3,}|_{3,})\s*(original message|original-nachricht|ursprüngliche nachricht|` +
	`message d'origine|message original|mensaje original|messaggio originale|mensagem original|oorspronkelijk bericht|` +
	`forwarded message|weitergeleitete nachricht)\s*-*\s*$`)

// quotedHead matches a line of the header that Outlook writes before a quotation.
var quotedHead = regexp.MustCompile(`(?i)^\s*\*?(from|von|de|da|van|från|fra|od|от|发件人|差出人|sent|gesendet|envoyé|enviado|inviato|verzonden|skickat|` +
	`date|datum|fecha|data|to|an|à|para|a|aan|till|til|do|cc|subject|betreff|objet|asunto|oggetto|assunto|onderwerp|ämne|emne)\s?\*?\s?:`)

var quotedFrom = regexp.MustCompile(`(?i)^\s*\*?(from|von|de|da|van|från|fra|od|от|发件人|差出人)\s?\*?\s?:`)

// sentFrom matches the signature lines of mobile mail programs.
var sentFrom = regexp.MustCompile(`(?i)^\s*(sent from my|sent from mail for|get outlook for|von meinem .{2,40} gesendet|gesendet von|envoyé de mon|` +
	`enviado desde mi|inviato da|enviado do meu|verzonden vanaf mijn|skickat från min)\b.{0,80}$`)

// maxLine bounds the lines that the patterns are applied to.
const maxLine = 700

// stripped returns text without quotations, signature and the signature line of a phone. If nothing
// would be left, it returns text.
func stripped(text string) string {
	lines := strings.Split(text, "\n")
	if end := quotedTail(lines); end >= 0 {
		lines = lines[:end]
	}
	kept := withoutQuotes(lines)
	for i, l := range kept {
		if l == "-- " || l == "--" {
			kept = kept[:i]
			break
		}
	}
	for len(kept) > 0 {
		last := strings.TrimSpace(kept[len(kept)-1])
		if last != "" && (len(last) > maxLine || !sentFrom.MatchString(last)) {
			break
		}
		kept = kept[:len(kept)-1]
	}
	if result := strings.TrimSpace(strings.Join(kept, "\n")); result != "" {
		return result
	}
	return strings.TrimSpace(text)
}

// quotedTail returns the index of the line after which everything is quoted, or -1.
func quotedTail(lines []string) int {
	for i, l := range lines {
		if l == "" || len(l) > maxLine || l[0] == '>' {
			continue
		}
		if separators.MatchString(l) {
			return i
		}
		if quotedFrom.MatchString(l) && heads(lines[i+1:]) >= 2 {
			if i > 0 && strings.Trim(strings.TrimSpace(lines[i-1]), "_-") == "" {
				return i - 1
			}
			return i
		}
	}
	return -1
}

// heads returns how many of the next lines belong to a quoted header.
func heads(lines []string) (n int) {
	for _, l := range lines[:min(len(lines), 5)] {
		if len(l) <= maxLine && quotedHead.MatchString(l) {
			n++
		}
	}
	return n
}

// withoutQuotes removes quoted lines and the attributions before them. After an attribution that no
// quoted line follows, all the rest is quoted.
func withoutQuotes(lines []string) (kept []string) {
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], ">") {
			continue
		}
		n := attribution(lines[i:])
		if n == 0 {
			kept = append(kept, lines[i])
			continue
		}
		next := i + n
		for next < len(lines) && strings.TrimSpace(lines[next]) == "" {
			next++
		}
		if next >= len(lines) || !strings.HasPrefix(lines[next], ">") {
			return kept
		}
		i = next - 1
	}
	return kept
}

// attribution returns the number of lines of an attribution, which programs wrap to up to three, or
// 0.
func attribution(lines []string) int {
	joined := ""
	for n, l := range lines[:min(len(lines), 3)] {
		l = strings.TrimSpace(l)
		if l == "" || l[0] == '>' || len(joined)+len(l) > maxLine {
			return 0
		}
		if joined = strings.TrimSpace(joined + " " + l); !strings.HasSuffix(l, ":") && !strings.HasSuffix(l, "：") {
			continue
		}
		if attributions.MatchString(joined) {
			return n + 1
		}
		return 0
	}
	return 0
}
