package multiplayer_test

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kitbackend/kit/multiplayer"
)

func vectorSeed() []byte {
	seed := make([]byte, multiplayer.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	return seed
}

// TestRandomVector checks the stream against the test vector for other languages.
func TestRandomVector(t *testing.T) {
	seed := vectorSeed()
	if got := multiplayer.SeedHash(seed); got != "be45cb2605bf36bebde684841a28f0fd43c69850a3dce5fedba69928ee3a8991" {
		t.Error(got)
	}
	var words []uint64
	for r := multiplayer.NewRandom(seed, 0); len(words) < 4; {
		words = append(words, uint64(r.Next()*(1<<53)))
	}
	if diff := cmp.Diff([]uint64{6844813279201839, 2582582639153016, 4112475300431600, 8281369971717387}, words); diff != "" {
		t.Error(diff)
	}
	r := multiplayer.NewRandom(seed, 0)
	if diff := cmp.Diff([]float64{0.7599269301829902, 0.28672427089848807}, []float64{r.Next(), r.Next()}); diff != "" {
		t.Error(diff)
	}
	var dice, cards []int64
	for range 10 {
		dice = append(dice, r.Int(1, 6))
	}
	for range 4 {
		cards = append(cards, r.Int(0, 51))
	}
	if diff := cmp.Diff([]int64{3, 4, 1, 4, 6, 4, 2, 1, 3, 3}, dice); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int64{47, 1, 33, 48}, cards); diff != "" {
		t.Error(diff)
	}
	if got := r.Int(0, 1<<52); got != 2267968636379196 {
		t.Error(got)
	}
	if r.Cursor() != 17 {
		t.Errorf("the cursor is %d", r.Cursor())
	}
}

// TestRandomGoesOn checks that a stream continued at a cursor gives the same words as the one from
// the start.
func TestRandomGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "seed")
		skip := rapid.IntRange(0, 40).Draw(t, "skip")
		least := rapid.Int64Range(-1<<40, 1<<40).Draw(t, "least")
		most := least + rapid.Int64Range(0, 1<<53-1).Draw(t, "span")
		whole := multiplayer.NewRandom(seed, 0)
		for range skip {
			whole.Next()
		}
		later := multiplayer.NewRandom(seed, int64(skip))
		for range 10 {
			a, b := whole.Int(least, most), later.Int(least, most)
			if a != b || a < least || a > most || whole.Cursor() != later.Cursor() {
				t.Fatalf("%s: %d and %d of %d to %d", hex.EncodeToString(seed), a, b, least, most)
			}
		}
	})
}

func TestRandomIsEven(t *testing.T) {
	const draws = 60_000
	r, counts := multiplayer.NewRandom(vectorSeed(), 0), make([]float64, 6)
	for range draws {
		counts[r.Int(0, 5)]++
	}
	square := 0.0
	for _, n := range counts {
		square += (n - draws/6) * (n - draws/6) / (draws / 6)
	}
	if square > 20.5 { // one in a thousand for five degrees of freedom
		t.Errorf("chi square %.1f of %v", square, counts)
	}
}

func TestShuffleAndPick(t *testing.T) {
	items := []string{"a", "b", "c", "d", "e"}
	mixed := slices.Clone(items)
	r := multiplayer.NewRandom(vectorSeed(), 0)
	r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	if slices.Equal(mixed, items) || r.Cursor() != 4 {
		t.Errorf("%v after %d words", mixed, r.Cursor())
	}
	if slices.Sort(mixed); !slices.Equal(mixed, items) {
		t.Errorf("%v", mixed)
	}
	if got := multiplayer.Pick(multiplayer.NewRandom(vectorSeed(), 2), items); !slices.Contains(items, got) {
		t.Error(got)
	}
}

func TestRandomRefusesNonsense(t *testing.T) {
	for name, f := range map[string]func(){
		"empty":    func() { multiplayer.NewRandom(vectorSeed(), 0).Int(1, 0) },
		"too wide": func() { multiplayer.NewRandom(vectorSeed(), 0).Int(0, 1<<53) },
		"widest":   func() { multiplayer.NewRandom(vectorSeed(), 0).Int(math.MinInt64, math.MaxInt64) },
		"nothing":  func() { multiplayer.Pick(multiplayer.NewRandom(vectorSeed(), 0), []int{}) },
		"nobody's": func() { (*multiplayer.Random)(nil).Next() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: drawn", name)
				}
			}()
			f()
		}()
	}
}

// TestWhoMayDraw checks that the functions that return states may draw, that a draw by those that
// only read them is a fault, and that nothing of the transition is stored then.
func TestWhoMayDraw(t *testing.T) {
	type game = multiplayer.Context[struct{}]
	for _, drawing := range []string{"Init", "Apply", "IsComplete", "Resolve", "Redact"} {
		draw := func(c game, doing string) {
			if doing == drawing {
				c.Random.Next()
			}
		}
		s, err := multiplayer.Simulate(multiplayer.Define(multiplayer.Definition[struct{}, bool]{
			Kind: "draws", MinPlayers: 1,
			Init: func(c game) (bool, []multiplayer.Effect, error) {
				draw(c, "Init")
				return false, nil, nil
			},
			Apply: func(c game, _ bool, _ multiplayer.Move) (bool, []multiplayer.Effect, error) {
				draw(c, "Apply")
				return true, nil, nil
			},
			IsComplete: func(c game, over bool) bool {
				if over {
					draw(c, "IsComplete")
				}
				return over
			},
			Resolve: func(c game, _ bool) multiplayer.Outcome {
				draw(c, "Resolve")
				return multiplayer.Outcome{}
			},
			Redact: func(c game, over bool, _ string, _ bool) any {
				draw(c, "Redact")
				return over
			},
		}), multiplayer.Game{Key: "g", Kind: "draws", Players: 1}, vectorSeed(), time.Unix(1e9, 0), "ada")
		if err != nil {
			t.Fatal(err)
		}
		acted := s.Act("ada", json.RawMessage(`{}`), time.Unix(1e9, 0))
		_, seen := s.View("ada")
		wantCursor := map[string]int64{"Init": 1, "Apply": 1}[drawing]
		reads := drawing == "IsComplete" || drawing == "Resolve"
		if (acted != nil) != reads || (seen != nil) != (drawing == "Redact") || s.Cursor() != wantCursor || (s.Phase() == multiplayer.PhaseResolved) == reads {
			t.Errorf("%s draws: %v, %v, cursor %d, %s", drawing, acted, seen, s.Cursor(), s.Phase())
		}
	}
}
