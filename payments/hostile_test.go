package payments_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/budget"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/androidstore/androidstoretest"
	"github.com/kitbackend/kit/payments/cardprocessor/cardprocessortest"
	"github.com/kitbackend/kit/payments/iosstore/iosstoretest"
	"github.com/kitbackend/kit/payments/paytest"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/payments/railtest/sign"
)

// proven makes a delivery of any bytes with a genuine proof, as a sender whose
// secret leaked could.
func (m *mall) proven(rail payments.RailID, body []byte) script.Delivery {
	secret := m.stores.Credentials()[string(rail)]["webhookSecret"].Reveal()
	now := m.Clock.Now()
	d := script.Delivery{Body: body}
	switch rail {
	case android:
		d.Header = http.Header{"Authorization": {"Bearer " + m.stores.Android.Google.Token(sign.Claims(androidstoretest.Audience, androidstoretest.Account, now))}}
	case card:
		d.Header = sign.CardProcessor(secret, body, now)
	case payments.RailMerchantA:
		d.Header = sign.MerchantA(secret, body, now)
	case payments.RailMerchantB:
		d.Header = sign.MerchantB(secret, "msg_1", body, now)
	default:
	}
	return d
}

func (m *mall) send(rail payments.RailID, d script.Delivery) (status int, code string) {
	m.t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, d.Request("/payments/webhooks/"+string(rail)))
	var response struct {
		Code  string `json:"code"`
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil {
		m.t.Fatalf("%d %s", w.Code, w.Body)
	}
	if response.Error.Code != "" {
		response.Code = response.Error.Code
	}
	return w.Code, response.Code
}

func (m *mall) wantNoRows() {
	m.t.Helper()
	var list capability.Items[payments.Purchase]
	m.Machine("payments:purchases:read").Get("/payments/admin/purchases").Want(200, "").JSON(&list)
	if len(list.Items) != 0 {
		m.t.Errorf("there are rows: %+v", list.Items)
	}
}

// TestLogSaysWhyAProofDoesNotVerify: a sender learns nothing of it.
func TestLogSaysWhyAProofDoesNotVerify(t *testing.T) {
	missing := map[payments.RailID]string{
		ios: "the body has no signedPayload", android: "the header Authorization is missing", card: "the header Stripe-Signature is missing",
		payments.RailMerchantA: "the header Paddle-Signature is missing", payments.RailMerchantB: "the header Webhook-Id is missing",
	}
	for _, rail := range paytest.Rails {
		t.Run(string(rail), func(t *testing.T) {
			var log bytes.Buffer
			m := openMall(t, kit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			refused := func(d script.Delivery, reason string) {
				t.Helper()
				log.Reset()
				w := httptest.NewRecorder()
				m.ServeHTTP(w, d.Request("/payments/webhooks/"+string(rail)))
				said := log.String()
				if w.Code != 401 || strings.Contains(w.Body.String(), reason) || !strings.Contains(said, "msg=refused") || !strings.Contains(said, reason) {
					t.Errorf("sent %d %s and logged %s, expected %q in the log alone", w.Code, w.Body, said, reason)
				}
				for _, values := range d.Header {
					if strings.Contains(said, values[0]) {
						t.Errorf("the log quotes %s: %s", values[0], said)
					}
				}
			}
			event := []byte(`{"id":"a"}`)
			refused(script.Delivery{Body: []byte("{")}, missing[rail])
			if rail == ios {
				return // the certificates are those of the notification itself
			}
			old := m.proven(rail, event)
			m.Clock.Advance(2 * time.Hour)
			refused(m.proven(rail, event), "no event that can be recorded")
			refused(old, "the time here")
		})
	}
}

// TestHostileWebhooks sends what exhausts or confuses a parser to every rail, with
// a good proof: it is refused or ignored, at once, and leaves nothing.
func TestHostileWebhooks(t *testing.T) {
	const depth = 5000
	deep := strings.Repeat(`{"a":[`, depth) + "1" + strings.Repeat("]}", depth)
	inner := map[string]string{
		"deep nesting": deep,
		"deep data":    `{"id":"evt_1","event_id":"evt_1","type":"x","event_type":"x","data":` + deep + `}`,
		"a NUL":        "{\"id\":\"a\x00b\",\"event_id\":\"a\x00b\",\"type\":\"x\"}",
		"escaped NUL":  `{"id":"a\u0000b","event_id":"a\u0000b","notificationUUID":"a\u0000b","packageName":"a\u0000b","type":"x","event_type":"x"}`,
		"no UTF-8":     "{\"id\":\"\xff\"}",
		"twice":        `{"id":"a","id":"b"}`,
		"no JSON":      `id=a`,
		"null":         `null`,
	}
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		big := []byte(`{"id":"` + strings.Repeat("x", 10<<20) + `"}`)
		if status, code := m.send(rail, m.proven(rail, big)); status != 413 || code != "kit/body_too_large" {
			t.Errorf("10 MB: %d %s, want 413 kit/body_too_large", status, code)
		}
		for name, text := range inner {
			deliveries := []script.Delivery{m.proven(rail, []byte(text))}
			switch rail {
			case android:
				deliveries = append(deliveries, m.stores.Android.Push([]byte(text), sign.Claims(androidstoretest.Audience, androidstoretest.Account, m.Clock.Now())))
			case ios:
				if json.Valid([]byte(text)) {
					deliveries = append(deliveries, script.Delivery{Body: script.Encode(script.Object{"signedPayload": m.stores.IOS.Apple.Sign(json.RawMessage(text))})})
				}
			default:
			}
			for _, d := range deliveries {
				budget.Hold(t, len(d.Body), func() {
					if status, code := m.send(rail, d); status != 401 && status != 200 {
						t.Errorf("%s: %d %s, want 401, or 200 and nothing done", name, status, code)
					}
				})
			}
		}
		m.wantNoRows()
	})
}

// openDeployment opens a mall in production, or not.
func openDeployment(t *testing.T, environment payments.StoreEnvironment) *mall {
	t.Helper()
	if environment != payments.EnvironmentProduction {
		return openMall(t)
	}
	return openMallOf(t, environment, kit.WithEnvironment(capability.Production), kit.WithBaseURL("https://shop.example"),
		kit.WithMasterKeys(func(context.Context) (string, error) { return "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", nil }))
}

// TestOtherEnvironmentOverHTTP: a genuine delivery of production at a deployment
// that is not, and the reverse, is acknowledged, recorded and without effect. The
// merchants of record name no environment: one of another has another secret.
func TestOtherEnvironmentOverHTTP(t *testing.T) {
	for deployed, foreign := range map[payments.StoreEnvironment]payments.StoreEnvironment{
		payments.EnvironmentSandbox:    payments.EnvironmentProduction,
		payments.EnvironmentProduction: payments.EnvironmentSandbox,
	} {
		for rail, buy := range map[payments.RailID]func(m *mall) []script.Delivery{
			ios: func(m *mall) []script.Delivery {
				other := iosstoretest.New(m.Clock.Now, foreign)
				other.Apple = m.stores.IOS.Apple
				_, out := other.Subscribe(script.Purchase{ProductID: "prod_pro"})
				return out
			},
			android: func(m *mall) []script.Delivery {
				token, out := m.stores.Android.Subscribe(script.Purchase{ProductID: "prod_pro"})
				if foreign == payments.EnvironmentProduction {
					m.stores.Android.PaidFor(token)
				} else {
					m.stores.Android.OfTester(token)
				}
				return out
			},
			card: func(m *mall) []script.Delivery {
				_, out := cardprocessortest.New(m.Clock.Now, foreign).Subscribe(script.Purchase{ProductID: "prod_pro", PriceID: "price_pro"})
				return out
			},
		} {
			t.Run(string(rail)+" in "+string(deployed), func(t *testing.T) {
				m := openDeployment(t, deployed)
				for _, d := range buy(m) {
					if rail == card {
						d = m.proven(card, d.Body)
					}
					if status, code := m.send(rail, d); status != 200 || code != "payments/environment_mismatch" {
						t.Errorf("%d %s, want 200 payments/environment_mismatch", status, code)
					}
					if status, code := m.send(rail, d); status != 200 || code != "" {
						t.Errorf("again: %d %s, want 200 and a duplicate", status, code)
					}
				}
				m.wantNoRows()
			})
		}
	}
	for _, rail := range []payments.RailID{payments.RailMerchantA, payments.RailMerchantB} {
		t.Run(string(rail), func(t *testing.T) {
			m, other := openMall(t), paytest.New(time.Now, payments.EnvironmentProduction)
			m.stores.DeliverTo(nil)
			caught := make(chan *http.Request, 100)
			other.Config(payments.Config{Products: goods()})
			other.DeliverTo(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { caught <- r }))
			if _, err := other.Buy(rail, paytest.Order{Product: m.products["pro"]}); err != nil {
				t.Fatal(err)
			}
			close(caught)
			for r := range caught {
				w := httptest.NewRecorder()
				if m.ServeHTTP(w, r); w.Code != 401 || !strings.Contains(w.Body.String(), "payments/invalid_signature") {
					t.Errorf("%d %s, want 401 payments/invalid_signature", w.Code, w.Body)
				}
			}
			m.wantNoRows()
		})
	}
}

// TestManifest shows every key of the configuration and of the health.
func TestManifest(t *testing.T) {
	s := open(t)
	want := map[string]any{"billingSubject": payments.SubjectUser, "resolveSubject": false, "graceGrantsAccess": true, "restore": payments.RestoreMove,
		"reconcile": true, "cancelOnErase": false, "database": "DB", "basePath": "/payments", "rails": nil, "returnURLs": nil, "products": nil,
		"manualEntitlements": nil}
	c := s.Payments().Capability()
	for _, key := range c.Config {
		value, ok := want[key.Key]
		if !ok || value != nil && key.Value != value || key.Summary == "" {
			t.Errorf("%s is %v, want %v", key.Key, key.Value, value)
		}
		if text, err := json.Marshal(key.Value); err != nil || strings.Contains(string(text), `"entitlements":null`) {
			t.Errorf("%s is %s, %v; want empty lists", key.Key, text, err)
		}
		delete(want, key.Key)
	}
	if len(want) != 0 {
		t.Errorf("the manifest lacks %v", want)
	}
	for _, key := range []string{"failedWebhooks", "owedClawbacks", "unacknowledged"} {
		if got := s.health(key); got != int64(0) {
			t.Errorf("%s is %v, want 0", key, got)
		}
	}
	if len(c.Health) != 3 {
		t.Errorf("%d health keys, want 3", len(c.Health))
	}
	if strings.Contains(string(s.Machine().Get("/__kit/manifest").Body), secret) {
		t.Error("the manifest shows a secret")
	}
	// Each key counts: a webhook that failed, and what waits for an acknowledgement.
	s.fail = payments.Transient(errDown, 0)
	o := s.pro(android, "t1", "ada")
	o.NeedsAcknowledge = true
	s.post(android, message{ID: "d1", Observations: []payments.Observation{o}}).Want(503, "payments/rail_unavailable")
	if got := s.health("failedWebhooks"); got != int64(1) {
		t.Errorf("failedWebhooks is %v, want 1", got)
	}
	s.fail = nil
	s.mu.Lock()
	s.ackFail = errDown
	s.mu.Unlock()
	s.deliver(android, message{ID: "d2", Observations: []payments.Observation{o}})
	if got := s.health("unacknowledged"); got != int64(1) {
		t.Errorf("unacknowledged is %v, want 1", got)
	}
}
