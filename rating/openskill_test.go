package rating_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
)

func TestOpenSkillVectors(t *testing.T) {
	four := [][]gauss{{{25, 8}}, {{29, 7}}, {{21, 6}}, {{30, 3}}}
	for _, g := range []game{
		{"1v1", []int{1, 2}, [][]gauss{{fresh}, {fresh}},
			[][]gauss{{{27.635389493140497, 8.06590141354368}}, {{22.364610506859503, 8.06590141354368}}}},
		{"1v1 draw", []int{1, 1}, [][]gauss{{fresh}, {fresh}},
			[][]gauss{{{25, 8.06590141354368}}, {{25, 8.06590141354368}}}},
		{"2v2", []int{1, 2}, [][]gauss{{{32.444, 5.123}, {43.381, 2.421}}, {{25.188, 6.211}, {27.5, 4}}},
			[][]gauss{
				{{32.70399079481531, 5.095909156813991}, {43.439116331308206, 2.419505266872059}},
				{{24.80588367426067, 6.146894414246083}, {27.341473161444462, 3.983641466284593}}}},
		{"1v2 draw", []int{1, 1}, [][]gauss{{{32.444, 5.123}}, {{25.188, 6.211}, {27.5, 4}}},
			[][]gauss{
				{{33.34259850606236, 5.091792846943906}},
				{{23.867302628020663, 6.129344634193997}, {26.952088369520965, 3.978984585659927}}}},
		{"upset", []int{1, 2}, [][]gauss{{{10, 2}}, {{40, 1}}},
			[][]gauss{{{10.63025066922215, 2.0014652333723166}}, {{39.84161811605336, 1.0034491570867483}}}},
		{"a tie within", []int{1, 2, 2, 4}, four,
			[][]gauss{
				{{28.293152716355763, 7.89595771004811}}, {{28.452688221482887, 6.844225469611863}},
				{{21.25478587761055, 5.9408154691230175}}, {{29.573449992598626, 2.995771436305334}}}},
		{"all tie", []int{1, 1, 1, 1}, four,
			[][]gauss{
				{{25.110244072686672, 7.89595771004811}}, {{28.86333122995546, 6.927747480152354}},
				{{21.186609987896073, 5.973628930627253}}, {{29.96292539506451, 2.998617841535345}}}},
		{"free for all", []int{1, 2, 3, 4, 5, 6, 7, 8},
			[][]gauss{{fresh}, {fresh}, {fresh}, {fresh}, {fresh}, {fresh}, {fresh}, {fresh}},
			[][]gauss{
				{{27.305965806497937, 8.319324930755442}}, {{26.92948159319215, 8.30314586072998}},
				{{26.490250011002068, 8.284756357401827}}, {{25.963172112373968, 8.263520922672088}},
				{{25.304324739088845, 8.238565992169107}}, {{24.425861574708676, 8.208891542373395}},
				{{23.10816682813843, 8.175379039834429}}, {{20.47277733499793, 8.175379039834429}}}},
	} {
		g.check(t, bind(t, "openskill", nil))
	}
}

// TestOpenSkillReference compares random games with the reference implementation:
// KIT_TEST_OPENSKILL names a directory with openskill in its node_modules.
func TestOpenSkillReference(t *testing.T) {
	dir := os.Getenv("KIT_TEST_OPENSKILL")
	if dir == "" {
		t.Skip("KIT_TEST_OPENSKILL is not set")
	}
	type played struct {
		Teams [][]gauss `json:"teams"`
		Rank  []int     `json:"rank"`
	}
	random := rand.New(rand.NewPCG(1, 2))
	games := make([]played, 2000)
	for i := range games {
		g, place := &games[i], 1
		for n := range 2 + random.IntN(9) {
			if n > 0 && random.IntN(4) > 0 {
				place = n + 1
			}
			team := make([]gauss, 1+random.IntN(4))
			for j := range team {
				team[j] = gauss{random.Float64() * 60, 0.5 + random.Float64()*10}
			}
			g.Teams, g.Rank = append(g.Teams, team), append(g.Rank, place)
		}
	}
	input, err := json.Marshal(games)
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", "testdata/openskill.mjs", dir)
	node.Stdin, node.Stderr = bytes.NewReader(input), os.Stderr
	output, err := node.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want [][][]gauss
	if err := json.Unmarshal(output, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) != len(games) {
		t.Fatalf("the reference rated %d games of %d", len(want), len(games))
	}
	r := bind(t, "openskill", nil)
	for i, g := range games {
		game{"random", g.Rank, g.Teams, want[i]}.check(t, r)
	}
}
