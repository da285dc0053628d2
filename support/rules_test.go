package support

import (
	"os"
	"strings"
	"testing"
)

// BenchmarkRules classifies the mails of the quality test by the rules alone, without database
// access.
func BenchmarkRules(b *testing.B) {
	file, err := os.ReadFile("testdata/mails.tsv")
	if err != nil {
		b.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(file)), "\n")
	s := &Support{}
	n := 0
	for b.Loop() {
		fields := strings.Split(rows[n%len(rows)], "\t")
		s.evidence(Thread{Subject: fields[1]}, nil, fields[2]).verdict(fields[1], fields[2])
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "mails/s")
}
