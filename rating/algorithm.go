package rating

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/internal/lazy"
)

// MaxPlayers bounds the players of one outcome.
const MaxPlayers = 1000

// Definition describes an algorithm with the parameters P and a player's state S, both structs that
// encode as JSON objects. The functions are pure: the same arguments give the same bits, on every
// node. [Define] makes an [Algorithm] from it.
//
// To be the same on every processor they must keep products from being fused with sums, by writing
// float64(x*y)+z, and must not use the functions of package math that are approximations; Sqrt,
// Abs, Floor and the like are exact.
type Definition[P, S any] struct {
	// ID is the name for [Game].Algorithm: 1 to 32 lower case letters, digits, hyphens and
	// underscores.
	ID string
	// Params is the JSON Schema (2020-12) of P: of an object whose properties have defaults, which
	// apply to the parameters that a game leaves out. Empty means that there are no parameters.
	Params string
	// State is the JSON Schema of S. Every state is validated against it before it is stored and
	// after it is read.
	State string
	// MinPlayers and MaxPlayers bound the players of an outcome; they default to 2 and
	// [MaxPlayers].
	MinPlayers, MaxPlayers int
	// Teams reports whether a side may have several players.
	Teams bool
	// Initial returns the state of a player who was never rated.
	Initial func(P) S
	// Update returns the states after an outcome, in the shape of its argument. Sides are ordered
	// by place, then by the first user id, and the players of a side by user id, so that the order
	// in which an outcome names them does not matter.
	Update func(p P, sides []Side[S]) [][]S
	// Skill reduces a state to the number that players are matched by.
	Skill func(p P, s S) float64
	// Rating, optional, returns the conventional numbers of a state: the rating, and its
	// uncertainty as a standard deviation, 0 for none. Like Skill it must return finite numbers.
	Rating func(p P, s S) (rating, deviation float64)
}

// Side is a player or a team in an outcome.
type Side[T any] struct {
	// Place counts from 1, the place of the winner; equal places are a draw.
	Place   int
	Players []T
}

// Algorithm is a rating algorithm that games can name; see [Define].
type Algorithm struct {
	id       string
	min, max int
	teams    bool
	// fault is the fault of the definition, if any.
	fault error
	bind  func(params map[string]any) (rules, error)
}

// rules are an algorithm with the parameters of a pool.
type rules struct {
	// params are complete, in canonical JSON.
	params  json.RawMessage
	initial rated
	update  func(sides []Side[string]) ([][]rated, error)
	// valid validates a stored state against the schema.
	valid func(state string) error
	// known returns the rating and the deviation of a valid state, nil for none.
	known func(state string) (rating, deviation *float64)
}

// rated is a player's state in its stored form, and its skill.
type rated struct {
	state string
	skill float64
}

var builtins lazy.Value[[]Algorithm]

// builtin returns the built-in algorithms.
func builtin() []Algorithm {
	return builtins.Get(func() []Algorithm {
		return []Algorithm{Define(elo), Define(glicko), Define(trueskill), Define(openskill)}
	})
}

var idForm = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// Define makes an algorithm for [Config].Algorithms. Faults of the definition are reported at
// assembly.
func Define[P, S any](d Definition[P, S]) Algorithm {
	a := Algorithm{id: d.ID, min: cmp.Or(d.MinPlayers, 2), max: cmp.Or(d.MaxPlayers, MaxPlayers), teams: d.Teams}
	params, paramsErr := resolve(cmp.Or(d.Params, `{"type": "object", "additionalProperties": false}`))
	state, stateErr := resolve(d.State)
	switch {
	case !idForm.MatchString(d.ID):
		a.fault = errors.New("the id is not 1 to 32 lower case letters, digits, hyphens and underscores")
	case a.min < 2 || a.max < a.min || a.max > MaxPlayers:
		a.fault = fmt.Errorf("the player counts %d to %d are not within 2 to %d", a.min, a.max, MaxPlayers)
	case d.Initial == nil || d.Update == nil || d.Skill == nil:
		a.fault = errors.New("Initial, Update or Skill is missing")
	case paramsErr != nil:
		a.fault = fmt.Errorf("the schema of the parameters: %w", paramsErr)
	case stateErr != nil:
		a.fault = fmt.Errorf("the schema of the state: %w", stateErr)
	}
	a.bind = func(given map[string]any) (rules, error) { return bind(d, params, state, given) }
	return a
}

func resolve(text string) (*jsonschema.Resolved, error) {
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		return nil, err
	}
	return schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
}

// bind completes and checks the parameters of a pool.
func bind[P, S any](d Definition[P, S], params, state *jsonschema.Resolved, given map[string]any) (rules, error) {
	var p P
	complete, err := completed(params, given)
	if err == nil {
		err = json.Unmarshal(complete, &p)
	}
	if err != nil {
		return rules{}, err
	}
	b := bound[P, S]{d, p, state, &texts{}}
	initial, err := b.encode(d.Initial(p))
	return rules{params: complete, initial: initial, update: b.update, valid: b.check, known: b.known}, err
}

// completed adds the defaults of the schema and validates the parameters against it.
func completed(schema *jsonschema.Resolved, given map[string]any) (json.RawMessage, error) {
	raw, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	params := map[string]any{}
	if err := json.Unmarshal(raw, &params); err != nil {
		return nil, err
	}
	if params == nil { // it was null
		params = map[string]any{}
	}
	if err := schema.ApplyDefaults(&params); err != nil {
		return nil, err
	}
	if err := schema.Validate(params); err != nil {
		return nil, err
	}
	return json.Marshal(params) // with its members in order
}

// bound is a definition with the parameters of a pool.
type bound[P, S any] struct {
	Definition[P, S]
	params P
	schema *jsonschema.Resolved
	valid  *texts // states that are known to be valid
}

// texts is a bounded set of recent texts.
type texts struct {
	mu    sync.Mutex
	among map[string]struct{}
	bytes int
}

const (
	maxTexts     = 4 << 20 // bytes
	textOverhead = 64      // for each text in the set
)

func (t *texts) has(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.among[text]
	return ok
}

func (t *texts) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.among[text]; known {
		return
	}
	size := len(text) + textOverhead
	if t.bytes += size; t.among == nil || t.bytes > maxTexts {
		t.among, t.bytes = make(map[string]struct{}), size
	}
	t.among[text] = struct{}{}
}

func (b bound[P, S]) update(sides []Side[string]) ([][]rated, error) {
	states := make([]Side[S], len(sides))
	for i, side := range sides {
		states[i] = Side[S]{side.Place, make([]S, len(side.Players))}
		for j, text := range side.Players {
			s, err := b.decode(text)
			if err != nil {
				return nil, err
			}
			states[i].Players[j] = s
		}
	}
	after := b.Update(b.params, states)
	results := make([][]rated, len(sides))
	if len(after) != len(sides) {
		return nil, fmt.Errorf("%s returned %d sides for %d", b.ID, len(after), len(sides))
	}
	for i, side := range sides {
		if len(after[i]) != len(side.Players) {
			return nil, fmt.Errorf("%s returned %d players for %d", b.ID, len(after[i]), len(side.Players))
		}
		results[i] = make([]rated, len(side.Players))
		for j, s := range after[i] {
			r, err := b.encode(s)
			if err != nil {
				return nil, err
			}
			results[i][j] = r
		}
	}
	return results, nil
}

func (b bound[P, S]) decode(text string) (s S, err error) {
	if err := b.check(text); err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(text), &s)
}

func (b bound[P, S]) encode(s S) (rated, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return rated{}, fmt.Errorf("a state of %s: %w", b.ID, err)
	}
	r := rated{string(text), b.Skill(b.params, s)}
	if !finite(r.skill) {
		return rated{}, fmt.Errorf("the skill of a state of %s is %v", b.ID, r.skill)
	}
	if b.Rating != nil {
		if rating, deviation := b.Rating(b.params, s); !finite(rating) || !finite(deviation) {
			return rated{}, fmt.Errorf("the rating of a state of %s is %v with a deviation of %v", b.ID, rating, deviation)
		}
	}
	return r, b.check(r.state)
}

// finite reports whether a number can be stored, and encoded as JSON.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func (b bound[P, S]) known(text string) (rating, deviation *float64) {
	var s S
	if b.Rating == nil || json.Unmarshal([]byte(text), &s) != nil {
		return nil, nil
	}
	r, d := b.Rating(b.params, s)
	if d != 0 {
		deviation = &d
	}
	return &r, deviation
}

// check validates a state against the schema. Recently validated states are cached, so a state that
// was just stored is not validated again when it is read.
func (b bound[P, S]) check(text string) error {
	if b.valid.has(text) {
		return nil
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return fmt.Errorf("a state of %s: %w", b.ID, err)
	}
	if err := b.schema.Validate(value); err != nil {
		return fmt.Errorf("a state of %s: %w", b.ID, err)
	}
	b.valid.add(text)
	return nil
}
