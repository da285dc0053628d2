package main

import (
	"embed"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
)

//go:embed static templates
var files embed.FS

var page = template.Must(template.ParseFS(files, "templates/page.html"))

// policy lets the page load its own styles, and nothing else.
const policy = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// shop serves the page over a kit and the scripted stores.
type shop struct {
	kit    *kit.Kit
	stores *paytest.Stores

	mu     sync.Mutex
	bought map[string][]*bought // by user, in order
}

// bought is a purchase at a scripted store, so that its buttons can act on it.
type bought struct {
	*paytest.Purchase
	said string
}

// acts are the actions of a store on a purchase.
var acts = map[string]func(*paytest.Purchase) error{
	"renew":    (*paytest.Purchase).Renew,
	"grace":    func(p *paytest.Purchase) error { return p.Grace(time.Now().Add(6 * 24 * time.Hour)) },
	"hold":     (*paytest.Purchase).Hold,
	"recover":  (*paytest.Purchase).Recover,
	"pause":    func(p *paytest.Purchase) error { return p.Pause(time.Now().Add(30 * 24 * time.Hour)) },
	"resume":   (*paytest.Purchase).Resume,
	"cancel":   (*paytest.Purchase).Cancel,
	"expire":   (*paytest.Purchase).Expire,
	"refund":   (*paytest.Purchase).Refund,
	"dispute":  (*paytest.Purchase).ChargeBack,
	"win back": (*paytest.Purchase).WinBack,
	"upgrade":  func(p *paytest.Purchase) error { return p.Upgrade(products()[1]) },
	"unshare":  (*paytest.Purchase).Unshare,
}

// The buttons of a subscription and of a one-time purchase.
var (
	ofSubscription = []string{"renew", "grace", "hold", "recover", "pause", "resume", "cancel", "expire", "refund", "dispute", "win back", "upgrade"}
	ofOnce         = []string{"refund", "dispute", "win back"}
	ofFamily       = []string{"unshare"}
)

// handler serves the pages of the shop, and passes the paths of the kit to the kit.
func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.show)
	mux.HandleFunc("POST /enter", s.enter)
	mux.HandleFunc("POST /buy", s.buy)
	mux.HandleFunc("POST /act", s.act)
	mux.Handle("GET /static/", http.FileServerFS(files))
	mux.Handle("GET /members", s.kit.Payments().RequireEntitlement("members")(http.HandlerFunc(s.members)))
	var own http.CrossOriginProtection
	return s.kit.Before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		own.Handler(mux).ServeHTTP(w, r)
	}))
}

// user returns the id of the signed-in user, or "".
func (s *shop) user(r *http.Request) string {
	caller, ok, err := s.kit.Auth().Users().Session(r)
	if err != nil || !ok {
		return ""
	}
	return caller.UserID
}

// enter signs in as any user, because this shop is a demonstration.
func (s *shop) enter(w http.ResponseWriter, r *http.Request) {
	user := r.FormValue("user")
	if capability.CheckUserID(user) != nil {
		http.Error(w, "Say who you are.", http.StatusBadRequest)
		return
	}
	err := s.kit.Auth().EnsureUser(r.Context(), user)
	if err == nil {
		session, failed := s.kit.Auth().CreateSession(r.Context(), user)
		if err = failed; err == nil {
			http.SetCookie(w, s.kit.Auth().SessionCookie(session))
		}
	}
	s.back(w, r, err)
}

func (s *shop) back(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// buy sells a product at a scripted store, whose webhooks reach the kit before the page is shown
// again.
func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	user := s.user(r)
	if user == "" {
		http.Error(w, "Sign in first.", http.StatusUnauthorized)
		return
	}
	rail := payments.RailID(r.FormValue("rail"))
	for _, product := range products() {
		if product.Key != r.FormValue("product") || product.Store[rail] == (payments.StoreIDs{}) {
			continue
		}
		token, err := s.kit.Payments().AccountToken(r.Context(), payments.Subject{Type: payments.SubjectUser, ID: user})
		if err != nil {
			s.back(w, r, err)
			return
		}
		p, err := s.stores.Buy(rail, paytest.Order{Product: product, AccountToken: token, Shared: r.FormValue("shared") != ""})
		if err == nil {
			s.mu.Lock()
			s.bought[user] = append(s.bought[user], &bought{Purchase: p})
			s.mu.Unlock()
		}
		s.back(w, r, err)
		return
	}
	http.Error(w, "This is not sold.", http.StatusNotFound)
}

// act makes a store act on a purchase of the caller.
func (s *shop) act(w http.ResponseWriter, r *http.Request) {
	do, known := acts[r.FormValue("do")]
	n, err := strconv.Atoi(r.FormValue("n"))
	s.mu.Lock()
	list := s.bought[s.user(r)]
	s.mu.Unlock()
	if !known || err != nil || n < 0 || n >= len(list) {
		http.Error(w, "There is no such button.", http.StatusNotFound)
		return
	}
	err = do(list[n].Purchase)
	s.mu.Lock()
	list[n].said = r.FormValue("do")
	if errors.Is(err, paytest.ErrUnsupported) {
		list[n].said, err = "this store does not "+r.FormValue("do"), nil
	}
	s.mu.Unlock()
	s.back(w, r, err)
}

func (s *shop) members(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("Welcome, member. This page is for the entitled."))
}

// view is the data of the page.
type view struct {
	User         string
	Products     []payments.Product
	Rails        []payments.RailID
	Coins        int64
	Entitlements []payments.Entitlement
	Purchases    []purchaseView
	Members      bool
}

type purchaseView struct {
	N             int
	Rail          payments.RailID
	Product, Said string
	Acts          []string
}

func (s *shop) show(w http.ResponseWriter, r *http.Request) {
	v := view{User: s.user(r), Products: products(), Rails: paytest.Rails}
	if v.User != "" {
		if err := s.fill(r, &v); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, v) // fails only if the client has disconnected
}

func (s *shop) fill(r *http.Request, v *view) error {
	subject := payments.Subject{Type: payments.SubjectUser, ID: v.User}
	balances, err := s.kit.Ledger().Balances(r.Context(), ledger.AccountKey{UserID: v.User, Currency: "coins"})
	if err != nil {
		return err
	}
	v.Coins = balances[0].Balance
	resolved, err := s.kit.Payments().Entitlements(r.Context(), subject)
	if err != nil {
		return err
	}
	v.Entitlements = resolved.Entitlements
	if v.Members, err = s.kit.Payments().Entitled(r.Context(), subject, "members"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.bought[v.User] {
		p := purchaseView{N: i, Rail: b.Rail, Product: b.Order.Product.Key, Said: b.said, Acts: ofOnce}
		if b.Order.Product.Kind == payments.KindSubscription {
			p.Acts = ofSubscription
		}
		if b.Order.Shared {
			p.Acts = append(slices.Clone(p.Acts), ofFamily...)
		}
		v.Purchases = append(v.Purchases, p)
	}
	return nil
}
