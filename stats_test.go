package kit_test

import (
	"testing"

	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
)

func TestStatsCountWhatHappened(t *testing.T) {
	k := kittest.New(t, everything()...)
	for range 2 {
		k.User("ada").Get("/ledger/coins").Want(200, "")
	}
	k.User("ada").Get("/ledger/pounds").Want(404, "ledger/currency_not_found")
	k.Anonymous().Get("/nowhere").Want(404, "kit/not_found")
	if _, err := k.Ledger().Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: "welcome:ada"}); err != nil {
		t.Fatal(err)
	}
	stats, err := k.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(stats.Routes) != 1 || stats.Routes[0].Path != "/ledger/:currency" || stats.Routes[0].Requests != 3 || stats.Routes[0].Failures != 0 || stats.Routes[0].Took <= 0 {
		t.Errorf("routes: %+v", stats.Routes)
	}
	if stats.Refusals["ledger/currency_not_found"] != 1 || stats.Refusals["kit/not_found"] != 1 {
		t.Errorf("refusals: %v", stats.Refusals)
	}
	if stats.Health["ledger"]["accounts"] != 1 {
		t.Errorf("health: %v", stats.Health)
	}
	if _, ok := stats.Jobs["DB"]; !ok {
		t.Errorf("jobs: %+v", stats.Jobs)
	}
}
