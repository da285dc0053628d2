package support_test

import (
	"os"
	"strings"
	"testing"

	"github.com/kitbackend/kit/support"
)

// leastF1 is the minimum macro-F1 of the rules. The mails were written before their author saw the
// rules. The spam rules were widened once since, by known kinds of spam and without reading these
// mails; tuning the rules to them would make the figure worthless.
const leastF1 = 0.72

// TestClassifierOfRules prints how well the rules classify 200 mails.
func TestClassifierOfRules(t *testing.T) {
	file, err := os.ReadFile("testdata/mails.tsv")
	if err != nil {
		t.Fatal(err)
	}
	k := desk(t, support.Config{Guard: support.Guard{MaxPerHour: 1000, KeepSpam: true}})
	type counts struct{ right, claimed, actual float64 }
	tally := make(map[string]*counts)
	for _, c := range k.Support().Categories() {
		tally[c.Key] = &counts{}
	}
	rows := strings.Split(strings.TrimSpace(string(file)), "\n")
	right := 0
	wrong := make(map[string]int)
	threads := make(map[string]string)
	for i, row := range rows {
		fields := strings.Split(row, "\t")
		from := "p" + strings.Repeat("x", i) + "@customer.example"
		threads[receive(t, k, from, mail(from, fields[1], fields[2])).ThreadID] = fields[0]
	}
	k.RunJobs()
	for id, actual := range threads {
		detail := thread(t, k, id)
		if detail.By != support.ClassifierFallback {
			t.Fatalf("classified by %s", detail.By)
		}
		tally[actual].actual++
		tally[detail.Category].claimed++
		if detail.Category == actual {
			tally[actual].right++
			right++
		} else {
			wrong[actual+" as "+detail.Category]++
		}
	}
	sum := 0.0
	for key, n := range tally {
		f1 := 0.0
		if n.right > 0 {
			precision, recall := n.right/n.claimed, n.right/n.actual
			f1 = 2 * precision * recall / (precision + recall)
		}
		t.Logf("%-16s F1 %.2f: %2.0f right, %2.0f claimed, %2.0f actual", key, f1, n.right, n.claimed, n.actual)
		sum += f1
	}
	macro := sum / float64(len(tally))
	t.Logf("macro-F1 %.3f, %d of %d right", macro, right, len(rows))
	if macro < leastF1 {
		t.Errorf("macro-F1 is %.3f, want at least %.2f: %v", macro, leastF1, wrong)
	}
}
