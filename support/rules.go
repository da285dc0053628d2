package support

import (
	"slices"
	"strings"
	"unicode"

	"github.com/kitbackend/kit/internal/lazy"
)

// evidence is what the rules find in a message.
type evidence struct {
	scores map[string]int // by category
	spam   int
	// authFailed is true if the mail is not from its From domain.
	authFailed bool
	urgent     int
	mood       int
	anger      int
}

// terms are words and phrases with their weight for each category. A word that ends in "*" matches
// all words with that prefix. Weights: 3 is conclusive, 1 is a hint.
var terms = map[string]map[string]int{
	CategoryBilling: {"invoice*": 3, "refund*": 3, "billing": 3, "billed": 3, "charged": 3, "charge": 2, "charges": 2, "payment*": 3, "paid": 2,
		"pay": 1, "price*": 1, "pricing": 2, "subscription*": 2, "subscribed": 1, "receipt*": 2, "credit card": 3, "card": 1, "money": 1, "vat": 2,
		"tax": 1, "coupon*": 2, "discount*": 1, "renewal": 2, "renewed": 2, "purchase*": 2, "cancel my subscription": 3, "money back": 3, "twice": 1,
		"rechnung*": 3, "erstattung": 3, "rückerstattung": 3, "bezahl*": 2, "zahlung*": 3, "abgebucht": 3, "abo": 2, "abonnement": 2, "geld": 1,
		"facture*": 3, "rembours*": 3, "paiement*": 3, "prélevé": 3, "factura*": 3, "reembols*": 3, "pago": 2, "cobro": 3, "cobrado": 3},
	CategoryAccountAccess: {"password*": 3, "log in": 3, "login": 3, "logged out": 2, "sign in": 3, "signin": 3, "signing in": 3, "locked out": 3, "locked": 2,
		"account": 1, "2fa": 3, "two factor": 3, "authenticator": 3, "verification code": 3, "verification": 1, "passkey*": 3, "username": 2, "hacked": 3,
		"stolen account": 3, "reset": 1, "reset link": 3, "access my account": 3, "can't get in": 3, "cannot get in": 3, "recover": 2, "compromised": 3,
		"passwort*": 3, "anmelden": 3, "anmeldung": 2, "einloggen": 3, "konto": 1, "gesperrt": 3, "zugang": 2, "mot de passe": 3, "connexion": 2,
		"me connecter": 3, "compte": 1, "contraseña*": 3, "iniciar sesión": 3, "cuenta": 1, "bloqueada": 2},
	CategoryBugReport: {"bug*": 3, "crash*": 3, "error*": 2, "broken": 3, "doesn't work": 3, "does not work": 3, "not working": 3, "isn't working": 3, "stopped working": 3,
		"freez*": 3, "frozen": 2, "glitch*": 3, "stuck": 2, "fails": 2, "failed": 1, "blank screen": 3, "black screen": 3, "white screen": 3, "steps to reproduce": 3, "reproduce": 2,
		"expected": 1, "wrong": 1, "laggy": 2, "lag": 1, "slow": 1, "exception": 3, "stack trace": 3, "after the update": 2, "since the update": 2, "won't load": 3, "loading": 1, "disappeared": 2,
		"fehler*": 3, "absturz": 3, "stürzt": 3, "funktioniert nicht": 3, "geht nicht": 2, "kaputt": 3, "plante": 3, "erreur*": 3, "ne fonctionne": 3, "ne marche": 3,
		"fallo*": 3, "no funciona": 3, "se cierra": 3},
	CategoryFeatureRequest: {"feature*": 2, "feature request": 3, "would be nice": 3, "would be great": 3, "would love": 3, "please add": 3, "could you add": 3, "can you add": 3, "suggestion*": 3,
		"suggest": 2, "idea": 2, "wish": 2, "wishlist": 3, "support for": 1, "dark mode": 2, "integration": 1, "option to": 2, "ability to": 2, "missing": 1, "it would help": 2, "consider adding": 3, "export to": 1,
		"wäre schön": 3, "wäre toll": 3, "vorschlag*": 3, "wunsch": 2, "wünsch*": 2, "funktion": 1, "serait": 1, "ajouter": 2, "sería": 1, "agregar": 2, "añadir": 2, "sugerencia*": 3},
	CategoryAbuseReport: {"harass*": 3, "abus*": 3, "threat*": 3, "bully*": 3, "cheat*": 3, "cheater*": 3, "scam*": 2, "scammer*": 3, "fraud*": 2, "racist": 3, "racism": 3, "insult*": 3, "hate speech": 3, "stalk*": 3,
		"report a user": 3, "report a player": 3, "report this": 2, "reporting": 1, "toxic": 3, "impersonat*": 3, "offensive": 3, "slurs": 3, "aimbot": 3, "illegal": 2, "child": 1, "nude*": 2, "copyright": 2, "infring*": 2,
		"belästig*": 3, "beleidig*": 3, "bedroh*": 3, "betrüger*": 3, "harcèle*": 3, "insulte*": 3, "menac*": 3, "acoso": 3, "amenaz*": 3, "tramposo*": 3},
	CategoryPrivacyRequest: {"gdpr": 3, "dsgvo": 3, "rgpd": 3, "ccpa": 3, "personal data": 3, "my data": 3, "delete my account": 3, "delete my data": 3, "erase": 2, "erasure": 3, "right to be forgotten": 3,
		"data protection": 3, "privacy": 2, "copy of my data": 3, "export my data": 3, "data export": 2, "subject access": 3, "delete all": 2, "remove my": 2, "close my account": 2, "stored about me": 3, "consent": 2,
		"personenbezogen*": 3, "meine daten": 3, "datenschutz*": 3, "konto löschen": 3, "löschung": 3, "données personnelles": 3, "mes données": 3, "supprimer mon compte": 3,
		"datos personales": 3, "mis datos": 3, "eliminar mi cuenta": 3, "borrar mi cuenta": 3},
	CategorySpam: {
		// Services for sale.
		"seo": 3, "backlink*": 3, "link building": 3, "guest post": 3, "guest posts": 3, "sponsored post": 3, "sponsored posts": 3, "sponsored content": 2, "domain authority": 3, "rank your": 3, "ranking*": 2, "search engine": 2, "search engines": 2,
		"first page of google": 3, "page one of google": 3, "top of google": 3, "increase your traffic": 3, "more traffic": 2, "website traffic": 2, "organic traffic": 3, "web design": 2, "web designs": 2, "redesign*": 2, "web development": 2,
		"digital marketing": 3, "marketing agency": 3, "lead generation": 3, "qualified leads": 3, "leads": 1, "email list": 3, "email lists": 3, "mailing list": 2, "mailing lists": 2, "b2b": 2, "decision makers": 3, "outsourc*": 2, "offshore": 2, "mobile app development": 2,
		"our agency": 2, "our team of": 1, "our company": 1, "we are a leading": 3, "manufacturer*": 2, "factory": 2, "supplier*": 2, "wholesale": 3, "price list": 2, "catalogue": 1, "business proposal": 3, "proposal": 1, "partnership": 1,
		"boost your": 2, "grow your business": 3, "your business": 1, "increase your sales": 3, "free audit": 3, "free consultation": 3, "free quote": 3, "quick call": 2, "15 minute": 1, "15 minutes": 1, "10 minute": 1, "10 minutes": 1, "schedule a call": 2, "are you interested": 1,
		"reaching out": 1, "came across your": 3, "stumbled upon your": 3, "your website": 1, "i visited your": 2, "affordable": 2, "competitive price": 3, "competitive prices": 3, "best price": 2, "best prices": 2, "real followers": 3, "buy followers": 3, "followers": 1, "explainer video": 3,
		// Money for nothing.
		"lottery": 3, "jackpot": 3, "winner*": 2, "you have won": 3, "you've won": 3, "you won": 2, "have been selected": 3, "been chosen": 2, "claim your": 3, "prize*": 2, "gift card": 2, "gift cards": 2, "inheritance": 3, "next of kin": 3, "beneficiary": 3,
		"deceased": 2, "late husband": 3, "million dollars": 3, "million usd": 3, "million euro": 3, "million euros": 3, "million pounds": 3, "usd": 1, "barrister": 3, "attorney": 1, "wire transfer": 2, "bank transfer": 1, "western union": 3, "fund transfer": 3, "dear friend": 2, "dear sir": 2,
		"dear sir madam": 3, "dear beneficiary": 3, "dear customer": 2, "dear user": 2, "god bless": 2, "loan": 3, "loans": 3, "low interest": 3, "pre approved": 3, "credit score": 2, "debt": 2, "investment*": 2, "invest": 2, "investor*": 2, "investment opportunity": 3, "guaranteed": 2,
		"guaranteed profit": 3, "guaranteed profits": 3, "guaranteed return": 3, "guaranteed returns": 3, "high return": 3, "high returns": 3, "return on investment": 2, "daily profit": 3, "daily profits": 3, "profit*": 1, "passive income": 3, "financial freedom": 3, "earn money": 3, "make money": 3, "extra income": 3, "per day": 1, "a week from home": 3, "work from home": 3,
		"from home": 1, "bitcoin": 2, "btc": 2, "crypto": 2, "cryptocurrenc*": 2, "trading": 1, "forex": 3, "trading signals": 3, "double your": 3, "casino": 3, "betting": 2, "bonus": 1, "free spins": 3, "risk free": 3, "no risk": 2,
		// Goods.
		"viagra": 3, "cialis": 3, "pills": 3, "pharmacy": 3, "prescription": 2, "weight loss": 3, "lose weight": 3, "keto": 3, "cbd": 3, "supplement*": 2, "enlarge*": 3, "replica*": 3, "rolex": 3, "luxury watch": 3, "luxury watchs": 3, "hot singles": 3, "singles": 2, "dating": 2, "lonely": 2,
		"webcam": 2, "sexy": 3, "discount code": 1, "limited time": 3, "limited offer": 3, "special offer": 3, "exclusive offer": 3, "exclusive deal": 3, "best deal": 3, "best deals": 3, "promotion*": 2, "promo": 2, "clearance": 2, "free trial": 1, "free gift": 3, "free shipping": 2, "cheap*": 2, "lowest price": 3, "lowest prices": 3, "order now": 3,
		"buy now": 3, "act now": 3, "act fast": 3, "don't miss": 3, "hurry": 2, "offer expires": 3, "offer ends": 3, "while supplies last": 3, "click here": 2, "click the link": 2, "click below": 3, "visit our": 2, "unsubscribe": 2, "opt out": 2, "to be removed": 2, "100% free": 3, "once in a lifetime": 3,
		// Phishing and threats.
		"verify your account": 2, "verify your mailbox": 3, "confirm your account": 1, "confirm your identity": 2, "mailbox": 2, "mailbox is full": 3, "mailbox quota": 3, "storage quota": 2, "will be suspended": 3, "will be deactivated": 3, "will be terminated": 2, "suspended within": 3, "within 24 hours": 2, "within 48 hours": 2,
		"unusual activity": 2, "update your payment": 2, "your parcel": 3, "your package": 2, "customs fee": 3, "delivery fee": 3, "domain expires": 3, "domain expired": 3, "domain expiration": 3, "domain name registration": 3, "trademark": 2, "hacked your device": 3, "recorded you": 3, "your webcam": 3, "pay in bitcoin": 3, "docusign": 2, "see attached invoice": 2, "kindly": 2,
		// German, French, Spanish, Italian, Portuguese.
		"gewonnen": 3, "gewinn*": 2, "gewinnspiel": 3, "lotterie": 3, "kredit*": 2, "darlehen": 3, "ohne schufa": 3, "geld verdienen": 3, "nebenverdienst": 3, "von zu hause": 2, "jetzt kaufen": 3, "jetzt sichern": 3, "hier klicken": 3, "klicken sie hier": 3, "kostenlos*": 1, "gratis": 1, "sonderangebot*": 3, "angebot": 1, "rabatt": 2, "günstig*": 2,
		"suchmaschinen*": 3, "webdesign": 3, "neukunden": 3, "mehr kunden": 3, "abmelden": 1, "erbschaft": 3, "potenzmittel": 3, "abnehmen": 2, "unverbindlich*": 2,
		"gagné": 3, "gagnant*": 3, "loterie": 3, "prêt": 1, "crédit": 2, "taux": 2, "gagner de l'argent": 3, "cliquez ici": 3, "cliquez": 2, "offre": 1, "offre spéciale": 3, "offre exclusive": 3, "promotion": 2, "référencement": 3, "site web": 1, "héritage": 3, "pas cher": 3, "se désabonner": 2, "bénéficiaire": 3, "investissement*": 2, "gratuit*": 1,
		"ganado": 3, "ganador*": 3, "lotería": 3, "premio*": 3, "préstamo*": 3, "crédito": 2, "ganar dinero": 3, "haga clic": 3, "haz clic": 3, "clic aquí": 3, "oferta*": 2, "oferta especial": 3, "descuento*": 2, "posicionamiento": 3, "herencia": 3, "beneficiario": 3, "inversión": 2, "inversiones": 2, "desde casa": 2, "darse de baja": 2,
		"vinto": 3, "vincitore": 3, "lotteria": 3, "prestito": 3, "guadagn*": 3, "clicca qui": 3, "offerta*": 2, "sconto": 2, "eredità": 3, "posizionamento": 3, "investimento*": 2,
		"ganhou": 3, "ganhe dinheiro": 3, "sorteio": 3, "empréstimo*": 3, "clique aqui": 3, "promoção": 3, "desconto*": 2, "herança": 3,
	},
}

var urgentTerms = map[string]int{"urgent*": 3, "asap": 3, "immediately": 3, "right now": 2, "emergency": 3, "hacked": 3, "stolen": 2, "fraud*": 2, "threat*": 2, "lawyer": 3, "legal action": 3,
	"production is down": 3, "is down": 2, "outage": 3, "data loss": 3, "lost all": 3, "compromised": 3, "suicide": 3, "unauthorized": 3, "charged twice": 2, "dringend": 3, "sofort": 3, "anwalt": 3, "immédiatement": 3, "urgente*": 3}

// The terms of moods, positive and negative; anger is distinguished from disappointment.
var goodTerms = map[string]int{"thanks": 1, "thank you": 1, "love": 2, "great": 1, "awesome": 2, "amazing": 2, "excellent": 2, "perfect": 2, "happy": 1, "appreciate": 2, "fantastic": 2, "wonderful": 2, "danke": 1, "super": 1, "toll": 1, "merci": 1, "gracias": 1}

var badTerms = map[string]int{"disappoint*": 2, "frustrat*": 3, "annoy*": 2, "unacceptable": 3, "unhappy": 2, "again and again": 2, "still": 1, "third time": 3, "third email": 3, "waste*": 2, "waiting": 1, "nobody": 1, "no answer": 2, "no response": 2, "tired of": 2, "sick of": 3,
	"lost": 1, "terrible": 2, "worst": 3, "useless": 3, "ärgerlich": 2, "enttäusch*": 2, "nervt": 2, "déçu*": 2, "decepcion*": 2}

var angerTerms = map[string]int{"furious": 3, "angry": 3, "outrageous": 3, "ridiculous": 2, "unacceptable": 2, "thieves": 3, "scammers": 3, "disgusting": 3, "disgrace": 3, "idiots": 3, "lawyer": 1, "sue you": 3, "garbage": 2, "trash": 2, "worst": 1, "hate": 1, "wtf": 3, "shame on": 3, "steal*": 1, "unverschämt*": 3, "frechheit": 3, "wütend": 3, "furieux": 3, "scandaleux": 3, "indignante": 3}

var lowTerms = map[string]int{"no rush": 3, "no hurry": 3, "whenever": 2, "just wondering": 2, "small thing": 2, "minor": 2, "someday": 2, "nice to have": 3, "when you have time": 3, "keine eile": 3}

var shorteners = []string{"bit.ly/", "tinyurl.com/", "t.co/", "goo.gl/", "is.gd/", "cutt.ly/", "rb.gy/", "ow.ly/"}

// table is a set of terms, prepared for one pass over a text.
type table struct {
	exact  map[string]int
	prefix map[string]int // keyed by the whole prefix
	words  int            // in the longest phrase
	least  int            // shortest prefix in bytes
	most   int
}

func compile(terms map[string]int) *table {
	t := &table{exact: make(map[string]int), prefix: make(map[string]int), words: 1, least: 100}
	for term, weight := range terms {
		if head, ok := strings.CutSuffix(term, "*"); ok {
			t.prefix[head] = weight
			t.least, t.most = min(t.least, len(head)), max(t.most, len(head))
			continue
		}
		key := strings.Join(tokens(term), " ")
		t.exact[key] = weight
		t.words = max(t.words, strings.Count(key, " ")+1)
	}
	return t
}

// score returns the sum of the weights of the terms in a text, each counted at most twice.
func (t *table) score(words []string) (sum int) {
	seen := make(map[string]int)
	count := func(term string, weight int) {
		if seen[term]++; seen[term] <= 2 {
			sum += weight
		}
	}
	for i, word := range words {
		phrase := word
		for n := 1; ; n++ {
			if weight, ok := t.exact[phrase]; ok {
				count(phrase, weight)
			}
			if n == t.words || i+n >= len(words) {
				break
			}
			phrase += " " + words[i+n]
		}
		for n := min(t.most, len(word)); n >= t.least; n-- {
			if weight, ok := t.prefix[word[:n]]; ok {
				count(word[:n], weight)
				break
			}
		}
	}
	return sum
}

// tables are the compiled terms.
type tables struct {
	byCategory                    map[string]*table
	urgent, low, good, bad, anger *table
}

var compiled lazy.Value[tables]

func compileAll() tables {
	byCategory := make(map[string]*table)
	for category, list := range terms {
		byCategory[category] = compile(list)
	}
	return tables{byCategory, compile(urgentTerms), compile(lowTerms), compile(goodTerms), compile(badTerms), compile(angerTerms)}
}

// maxWord bounds the length of a word in bytes, and so that of a phrase.
const maxWord = 40

// tokens splits text into words of letters, digits and apostrophes, in lower case.
func tokens(text string) []string {
	words := strings.FieldsFunc(strings.ToLower(strings.ReplaceAll(text, "\u2019", "'")), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\''
	})
	for i, word := range words {
		words[i] = clip(strings.Trim(word, "'"), maxWord)
	}
	return words
}

// evidence applies the rules to a thread.
func (s *Support) evidence(t Thread, messages []Message, text string) evidence {
	e := evidence{scores: make(map[string]int), authFailed: t.authFailed}
	rules := compiled.Get(compileAll)
	subject, body := tokens(t.Subject), tokens(text)
	for category, table := range rules.byCategory {
		e.scores[category] = 2*table.score(subject) + table.score(body)
	}
	for _, own := range s.cfg.Categories {
		if rules.byCategory[own.Key] == nil {
			e.scores[own.Key] = ownTable(own).score(append(subject, body...))
		}
	}
	all := append(subject, body...)
	e.urgent = rules.urgent.score(all) - rules.low.score(all)
	e.mood, e.anger = rules.good.score(all)-rules.bad.score(all), rules.anger.score(all)
	if shouting(t.Subject + " " + text) {
		e.anger++
	}
	e.spam = spamScore(t, messages, text, e.scores[CategorySpam])
	return e
}

// ownTable returns the terms of an application's category: the words of its key and description.
func ownTable(c Category) *table {
	list := map[string]int{strings.ReplaceAll(c.Key, "_", " "): 3}
	for _, word := range tokens(c.Key + " " + strings.ReplaceAll(c.Key, "_", " ") + " " + c.Description) {
		if len(word) > 4 {
			list[word] = max(list[word], 1)
		}
	}
	return compile(list)
}

func spamScore(t Thread, messages []Message, text string, words int) (score int) {
	lower := strings.ToLower(text)
	links := strings.Count(lower, "http://") + strings.Count(lower, "https://")
	if links >= 3 {
		score++
	}
	if slices.ContainsFunc(shorteners, func(s string) bool { return strings.Contains(lower, s) }) {
		score++
	}
	score += min(words/3, 3)
	if shouting(t.Subject) {
		score++
	}
	if mixed(t.Subject + " " + clip(text, 2000)) {
		score++
	}
	if t.authFailed {
		score++
	}
	for _, m := range messages {
		if slices.Contains(m.Warnings, warnExecutable) || slices.Contains(m.Warnings, warnLinkMismatch) {
			score++
			break
		}
	}
	return score
}

// shouting reports whether most letters are upper case.
func shouting(text string) bool {
	upper, letters := 0, 0
	for _, r := range text {
		if unicode.IsLetter(r) {
			letters++
			if unicode.IsUpper(r) {
				upper++
			}
		}
	}
	return letters >= 12 && upper*10 > letters*6
}

// mixed reports whether a word has letters of several scripts, which is typical of deceptions.
func mixed(text string) bool {
	for word := range strings.FieldsSeq(text) {
		var latin, other bool
		for _, r := range word {
			latin = latin || unicode.Is(unicode.Latin, r)
			other = other || unicode.Is(unicode.Cyrillic, r) || unicode.Is(unicode.Greek, r)
		}
		if latin && other {
			return true
		}
	}
	return false
}

// supportsSpam reports whether the rules support a model's verdict of spam.
func (e evidence) supportsSpam() bool { return e.spam >= 2 || e.authFailed }

// grave reports whether there is a sign of a matter that needs attention: privacy, abuse or account
// access.
func (e evidence) grave() bool {
	for _, category := range []string{CategoryPrivacyRequest, CategoryAbuseReport, CategoryAccountAccess} {
		if e.scores[category] >= 3 {
			return true
		}
	}
	return false
}

// least is the minimum score of a chosen category, and leastSpam that of spam. The category spam
// alone does not archive a thread: see [spamScore].
const (
	least     = 2
	leastSpam = 4
)

// verdict returns the classification by the rules alone.
func (e evidence) verdict(subject, text string) Verdict {
	v := Verdict{Category: CategoryUncategorized, Priority: PriorityNormal, Sentiment: SentimentNeutral}
	best, second := 0, 0
	keys := make([]string, 0, len(e.scores))
	for key := range e.scores {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		score := e.scores[key]
		if key == CategorySpam {
			continue
		}
		if score > best {
			best, second, v.Category = score, best, key
		} else {
			second = max(second, score)
		}
	}
	if best < least {
		v.Category = CategoryUncategorized
	}
	if score := e.scores[CategorySpam]; score >= leastSpam && score > best {
		v.Category, v.Spam, second, best = CategorySpam, e.spam >= 3, best, score
	}
	v.Confidence = float64(best-second+1) / float64(best+second+4)
	v.Priority, v.Sentiment = e.priority(v.Category), e.sentiment()
	v.Summary = line(subject, maxSummary)
	if v.Summary == "" {
		v.Summary = line(firstLine(text), maxSummary)
	}
	return v
}

func (e evidence) priority(category string) Priority {
	switch {
	case category == CategorySpam:
		return PriorityLow
	case e.urgent >= 3:
		return PriorityUrgent
	case e.grave():
		return PriorityNormal
	case category == CategoryFeatureRequest, e.urgent <= -2:
		return PriorityLow
	}
	return PriorityNormal
}

func (e evidence) sentiment() Sentiment {
	switch {
	case e.anger >= 3:
		return SentimentAngry
	case e.mood <= -2 || e.anger > 0 && e.mood < 0:
		return SentimentFrustrated
	case e.mood >= 2:
		return SentimentPositive
	}
	return SentimentNeutral
}
