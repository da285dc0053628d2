package testers

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/kitbackend/kit/internal/lazy"
)

// The rules of custom reminder texts. The word lists are in English, Spanish, German, French and
// Portuguese; they prevent mistakes, not deliberate circumvention.
const (
	ruleIncentive     = "incentive"
	ruleReview        = "review_solicitation"
	ruleFake          = "fake_engagement"
	ruleImpersonation = "impersonation"
	rulePressure      = "pressure"
	ruleForeignLink   = "foreign_link"
	ruleOptOut        = "opt_out_tampering"
	ruleUnsafe        = "unsafe_text"
)

// wordRule is matched against folded text. A match of a negatable rule that follows a negation is
// allowed, as in "no reward is given".
type wordRule struct {
	rule      string
	negatable bool
	words     *regexp.Regexp
}

var compiledRules lazy.Value[[]wordRule]

// wordRules returns the rules in the order of matching.
func wordRules() []wordRule {
	return []wordRule{
		{ruleIncentive, true, words(`gift ?cards?`, `vouchers?`, `rewards?`, `rewarded`, `prizes?`, `cash`, `pay you`, `paid`, `payment`, `get money`, `refunds?`,
			`tarjetas? regalo`, `recompensas?`, `premios?`, `dinero`, `te pagamos`, `reembolsos?`,
			`gutscheine?`, `belohnung(en)?`, `preise? gewinnen`, `bezahlt`, `bargeld`, `geld`,
			`cartes? cadeaux?`, `recompenses?`, `remuneres?`, `argent`, `bons? d'achat`, `dinheiro`, `vale-presente`, `pagamos`)},
		{ruleIncentive, true, regexp.MustCompile(`(?:[$€£¥]\s?\d|\b\d+(?:[.,]\d+)?\s?(?:[$€£¥]|usd\b|eur\b|gbp\b|dollars?\b|euros?\b))`)},
		{ruleReview, true, words(`5[ -]?stars?`, `five[ -]?stars?`, `rate us`, `(leave|write) (us )?a (good |nice |positive )?review`, `positive reviews?`,
			`5 estrellas`, `cinco estrellas`, `dejanos una resena`, `5 sterne`, `fünf sterne`, `bewerte uns`, `5 etoiles`, `cinq etoiles`, `notez-nous`,
			`5 estrelas`, `avalie-nos`)},
		{ruleFake, true, words(`fake accounts?`, `dummy accounts?`, `emulators?`, `just open it`, `multiple accounts`, `second account`, `several accounts`,
			`cuentas? falsas?`, `varias cuentas`, `emulador(es)?`, `fake-konten`, `mehrere konten`, `mehrere accounts`, `faux comptes?`, `plusieurs comptes`,
			`emulateurs?`, `contas? falsas?`, `varias contas`)},
		{ruleImpersonation, true, words(`from google`, `google requires you`, `google play team`, `official play team`, `on behalf of google`, `from apple`,
			`de parte de google`, `equipo de google`, `von google`, `google-team`, `de la part de google`, `equipe google`, `da google`, `equipe do google`)},
		{rulePressure, false, words(`must not uninstall`, `may not uninstall`, `never uninstall`, `not allowed to (leave|uninstall)`, `legal action`, `you will be sued`,
			`breach of contract`, `no puedes desinstalar`, `acciones legales`, `darfst nicht deinstallieren`, `rechtliche schritte`,
			`interdit de desinstaller`, `poursuites judiciaires`, `nao pode desinstalar`, `acao judicial`)},
		{ruleOptOut, false, words(`do not unsubscribe`, `don't unsubscribe`, `do not opt[ -]?out`, `don't opt[ -]?out`, `cannot unsubscribe`, `ignore the (opt-out|unsubscribe) link`,
			`no te des de baja`, `nicht abmelden`, `ne vous desabonnez pas`, `nao cancele a inscricao`)},
	}
}

func words(list ...string) *regexp.Regexp {
	for i, word := range list {
		list[i] = fold(word)
	}
	return regexp.MustCompile(`\b(?:` + strings.Join(list, "|") + `)\b`)
}

var (
	negation     = regexp.MustCompile(`\b(?:no|not|never|without|any|don't|sin|ningun|ninguna|kein|keine|keinen|nicht|ohne|sans|aucun|aucune|pas|sem|nenhum|nenhuma|nao)\b(?:\W+\w+){0,3}\W*$`)
	linkForm     = regexp.MustCompile(`(?i)\b(?:https?://|www\.)[^\s<>"']+`)
	placeholder  = regexp.MustCompile(`\{\{[^}]*\}?\}?`)
	placeholders = []string{"{{name}}", "{{cohort}}", "{{link}}"}
	bareHost     = regexp.MustCompile(`(?i)\b(?:bit\.ly|t\.co|tinyurl\.com|goo\.gl|is\.gd|ow\.ly|rebrand\.ly|cutt\.ly|shorturl\.at)\b`)
)

// confusables maps letters of other scripts to the Latin letters they look like.
var confusables = strings.NewReplacer("а", "a", "е", "e", "о", "o", "р", "p", "с", "c", "у", "y", "х", "x", "і", "i", "ѕ", "s", "ј", "j",
	"һ", "h", "ԁ", "d", "ո", "n", "α", "a", "ο", "o", "ρ", "p", "ε", "e", "ι", "i", "ν", "v", "υ", "u", "’", "'", "‘", "'", "‐", "-", "‑", "-")

// fold normalizes text for comparison: compatibility characters, case, accents, invisible
// characters and look-alikes.
func fold(text string) string {
	text = norm.NFKD.String(text)
	text = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
	text = confusables.Replace(cases.Fold().String(text))
	return strings.Join(strings.Fields(text), " ")
}

// checkCopy refuses a text that may not be sent with testers/copy_not_allowed.
func (t *Testers) checkCopy(c CustomCopy, storeURL string) error {
	for _, field := range []struct {
		name, text string
		most       int
	}{{"subject", c.Subject, 200}, {"body", c.Body, t.cfg.Copy.MaxBody}} {
		rule, match := t.offends(field.text, field.most, field.name == "body", storeURL)
		if rule != "" {
			if len(match) > 80 {
				match = strings.ToValidUTF8(match[:80], "")
			}
			return ErrCopyNotAllowed.With(CopyFault{Rule: rule, Field: field.name, Match: match})
		}
	}
	return nil
}

func (t *Testers) offends(text string, most int, lines bool, storeURL string) (rule, match string) {
	if strings.TrimSpace(text) == "" || len(text) > most {
		return ruleUnsafe, ""
	}
	for _, r := range text {
		newline := lines && (r == '\n' || r == '\r' || r == '\t')
		if r == unicode.ReplacementChar || (unicode.IsControl(r) && !newline) || unicode.Is(unicode.Bidi_Control, r) {
			return ruleUnsafe, ""
		}
	}
	for _, found := range placeholder.FindAllString(text, -1) {
		if !slices.Contains(placeholders, found) {
			return ruleUnsafe, found
		}
	}
	folded := fold(text)
	for _, r := range compiledRules.Get(wordRules) {
		for _, at := range r.words.FindAllStringIndex(folded, -1) {
			if r.negatable && negation.MatchString(folded[max(0, at[0]-60):at[0]]) {
				continue
			}
			return r.rule, folded[at[0]:at[1]]
		}
	}
	for _, term := range t.terms {
		if term != "" && strings.Contains(folded, term) {
			return ruleIncentive, term
		}
	}
	for _, link := range append(linkForm.FindAllString(text, -1), bareHost.FindAllString(text, -1)...) {
		if !t.ownHost(link, storeURL) {
			return ruleForeignLink, link
		}
	}
	return "", ""
}

// ownHost reports whether a link points to the kit, the store or an allowed host.
func (t *Testers) ownHost(link, storeURL string) bool {
	if !strings.Contains(link, "://") {
		link = "https://" + link
	}
	u, err := url.Parse(link)
	if err != nil || u.User != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	store, err := url.Parse(storeURL)
	return slices.Contains(t.hosts, host) || (err == nil && storeURL != "" && strings.EqualFold(store.Hostname(), host))
}
