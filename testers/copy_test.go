package testers

import (
	"strings"
	"testing"
)

// TestCopyRules tests a sentence for each rule, and some that are allowed.
func TestCopyRules(t *testing.T) {
	testers := &Testers{cfg: Config{}.withDefaults(nil), hosts: []string{"kit.example"}, terms: []string{fold("Lottery")}}
	for body, want := range map[string]string{
		"You get a gift card if you stay.":           ruleIncentive,
		"You get a GIFT\u200b CARD.":                 ruleIncentive,
		"A rеward for you":                           ruleIncentive, // with a Cyrillic letter
		"Install it for $5":                          ruleIncentive,
		"Wir zahlen 5 EUR, eine Belohnung":           ruleIncentive,
		"Join the lottery":                           ruleIncentive,
		"No reward is given for testing.":            "",
		"We cannot offer any payment.":               "",
		"Please leave a review with 5 stars":         ruleReview,
		"Notez-nous":                                 ruleReview,
		"Just open it daily":                         ruleFake,
		"Use an emulator":                            ruleFake,
		"This is from Google":                        ruleImpersonation,
		"You must not uninstall the app":             rulePressure,
		"See https://evil.example/x":                 ruleForeignLink,
		"See https://kit.example@evil.example/x":     ruleForeignLink,
		"See bit.ly/abc":                             ruleForeignLink,
		"See https://kit.example/help":               "",
		"See https://play.google.com/apps/testing/x": "",
		"Please do not unsubscribe":                  ruleOptOut,
		"Hello {{password}}":                         ruleUnsafe,
		"Hello \u202eabc":                            ruleUnsafe,
		"Bell \a":                                    ruleUnsafe,
		"":                                           ruleUnsafe,
		"Hello {{name}}, how is {{cohort}}?\nTell us: {{link}}": "",
	} {
		got, match := testers.offends(body, 2000, true, "https://play.google.com/apps/testing/x")
		if got != want {
			t.Errorf("%q: %q (%q), want %q", body, got, match, want)
		}
	}
	if rule, _ := testers.offends("two\nlines", 200, false, ""); rule != ruleUnsafe {
		t.Errorf("a subject of two lines: %q", rule)
	}
}

func FuzzCopy(f *testing.F) {
	f.Add("Hello {{name}}")
	testers := &Testers{cfg: Config{}.withDefaults(nil)}
	f.Fuzz(func(_ *testing.T, text string) { testers.offends(text, 2000, true, "https://store.example/") })
}

func FuzzRoster(f *testing.F) {
	f.Add("email,name\na@example.com,Ada\n")
	f.Fuzz(func(t *testing.T, text string) {
		people, err := readRoster(strings.NewReader(text))
		if err == nil && len(people) > maxImported {
			t.Errorf("%d people", len(people))
		}
	})
}
