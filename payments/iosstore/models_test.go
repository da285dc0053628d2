package iosstore

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/kitbackend/kit/internal/strictjson"
)

func model(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("testdata/models/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := strictjson.Valid(text); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// The names of the members are Apple's own: see NOTICE.
func TestPublishedModelsDecode(t *testing.T) {
	var tx transaction
	model(t, "signedTransactionWithRevocation", &tx)
	if tx.ID != "23456" || tx.OriginalID != "12345" || tx.BundleID != "com.example" || tx.ProductID != "com.example.product" || tx.PurchaseDate != 1698148900000 ||
		tx.OriginalDate != 1698148800000 || tx.ExpiresDate != 1698149000000 || tx.Quantity != 1 || tx.Type != typeRenewing || tx.Ownership != "PURCHASED" ||
		tx.SignedDate != 1698148900000 || tx.Reason == nil || *tx.Reason != 1 || tx.RevocationDate != 1698148950000 || tx.RevocationType != "REFUND_PRORATED" ||
		tx.Percentage != 50_000 || !tx.Upgraded || tx.OfferType != 1 || tx.OfferDiscount != "PAY_AS_YOU_GO" || tx.Currency != "USD" || tx.Price != 10_990 ||
		tx.AccountToken != "7e3fb20b-4cdb-47cc-936d-99d65f608138" || tx.Environment != "LocalTesting" {
		t.Errorf("a transaction: %+v", tx)
	}
	if r := refund(tx); !r.Full || r.AmountMinor != 550 { // half of 10.99, to the cent
		t.Errorf("half of 10.99 went back: %+v", r)
	}
	var r renewal
	model(t, "signedRenewalInfo", &r)
	if r.OriginalID != "12345" || r.RenewProductID != "com.example.product.2" || r.AutoRenew != 1 || r.GraceExpires != 1698148900000 ||
		r.PriceIncrease == nil || *r.PriceIncrease != 0 || r.RenewalDate != 1698148850000 || r.RenewalPrice != 9990 || r.SignedDate != 1698148800000 {
		t.Errorf("a renewal: %+v", r)
	}
	for name, want := range map[string]app{
		"signedNotification":                      {"LocalTesting", "com.example", "41234"},
		"signedConsumptionRequestNotification":    {"LocalTesting", "com.example", "41234"},
		"signedSummaryNotification":               {"LocalTesting", "com.example", "41234"},
		"signedRescindConsentNotification":        {"LocalTesting", "com.example", "41234"},
		"signedExternalPurchaseTokenNotification": {"Production", "com.example", "55555"},
	} {
		var n notification
		model(t, name, &n)
		if of, ok := n.of(); !ok || of != want || n.UUID != "002e14d5-51f5-4503-b5a8-c3a1af68eb20" || n.SignedDate != 1698148900000 {
			t.Errorf("%s is of %+v, want %+v", name, of, want)
		}
	}
	var n notification
	model(t, "signedNotification", &n)
	if n.Data.Status != 1 || n.Data.Transaction != "signed_transaction_info_value" || n.Data.Renewal != "signed_renewal_info_value" {
		t.Errorf("a notification: %+v", n.Data)
	}
}
