package vector

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/vector/internal/flat"
)

// Filter matches documents by their metadata. A member is a filterable key with a value, or with an
// object of eq, ne, gt, gte, lt, lte, in, nin and exists; or it is and, or (lists of filters) or
// not (a filter). All members must match. Values are strings, numbers and booleans, compared within
// their type; ne and nin match if there is no value. At most 4 levels, 32 conditions, and 100
// values of an in.
type Filter map[string]any

const (
	maxDepth      = 4
	maxConditions = 32
	maxList       = 100
	maxOperand    = 1024
)

func isGroup(key string) bool { return key == "and" || key == "or" || key == "not" }

// condition is a filter in the form for evaluation: a conjunction, disjunction or negation of its
// parts, or a test of a key.
type condition struct {
	group string // and, or, not; empty for a test
	parts []condition
	key   int // of Index.Filterable
	test  func(flat.Value) bool
	data  Condition // of a test
}

// filterParser parses a filter and counts its conditions.
type filterParser struct {
	keys  []string
	count int
}

// parseFilter checks a filter; nil matches everything.
func parseFilter(f Filter, keys []string) (*condition, error) {
	if len(f) == 0 {
		return nil, nil
	}
	p := filterParser{keys: keys}
	c, err := p.all(f, 1)
	if err != nil {
		return nil, err
	}
	return &c, nil
}

func invalidFilter(format string, args ...any) error {
	return capability.ErrInvalidRequest.Saying("filter: "+format, args...)
}

func (p *filterParser) all(f map[string]any, depth int) (condition, error) {
	c := condition{group: "and"}
	if depth > maxDepth {
		return c, invalidFilter("nests deeper than %d levels.", maxDepth)
	}
	for _, name := range sortedKeys(f) {
		part, err := p.member(name, f[name], depth)
		if err != nil {
			return c, err
		}
		c.parts = append(c.parts, part)
	}
	return c, nil
}

func (p *filterParser) member(name string, value any, depth int) (condition, error) {
	switch name {
	case "and", "or":
		list, ok := value.([]any)
		if !ok || len(list) == 0 || len(list) > maxConditions {
			return condition{}, invalidFilter("%s takes a list of 1 to %d filters.", name, maxConditions)
		}
		c := condition{group: name}
		for _, item := range list {
			inner, err := p.group(item, depth)
			if err != nil {
				return c, err
			}
			c.parts = append(c.parts, inner)
		}
		return c, nil
	case "not":
		inner, err := p.group(value, depth)
		return condition{group: "not", parts: []condition{inner}}, err
	default:
		return p.tests(name, value)
	}
}

func (p *filterParser) group(value any, depth int) (condition, error) {
	f, ok := asObject(value)
	if !ok || len(f) == 0 {
		return condition{}, invalidFilter("and, or and not take filters that are not empty.")
	}
	return p.all(f, depth+1)
}

func asObject(value any) (map[string]any, bool) {
	switch f := value.(type) {
	case map[string]any:
		return f, true
	case Filter:
		return f, true
	}
	return nil, false
}

func (p *filterParser) tests(name string, value any) (condition, error) {
	key := slices.Index(p.keys, name)
	if key < 0 {
		return condition{}, invalidFilter("%.64q is not a filterable key of this index.", name)
	}
	operators, ok := asObject(value)
	if !ok {
		operators = map[string]any{"eq": value}
	}
	if len(operators) == 0 {
		return condition{}, invalidFilter("%s has no operator.", name)
	}
	c := condition{group: "and"}
	for _, operator := range sortedKeys(operators) {
		if p.count++; p.count > maxConditions {
			return c, invalidFilter("has more than %d conditions.", maxConditions)
		}
		test, err := parseTest(name, operator, operators[operator])
		if err != nil {
			return c, err
		}
		list, ok := operators[operator].([]any)
		if !ok {
			list = []any{operators[operator]}
		}
		data := Condition{Key: name, Operator: operator, Operands: plainValues(list)}
		c.parts = append(c.parts, condition{key: key, test: test, data: data})
	}
	return c, nil
}

func parseTest(name, operator string, operand any) (func(flat.Value) bool, error) {
	switch operator {
	case "exists":
		want, ok := operand.(bool)
		if !ok {
			return nil, invalidFilter("%s.exists is true or false.", name)
		}
		return func(v flat.Value) bool { return (v.Kind != flat.Absent) == want }, nil
	case "in", "nin":
		list, ok := operand.([]any)
		if !ok || len(list) == 0 || len(list) > maxList {
			return nil, invalidFilter("%s.%s is a list of 1 to %d values.", name, operator, maxList)
		}
		among := make(map[flat.Value]bool, len(list))
		for _, item := range list {
			v, err := operandOf(name, item)
			if err != nil {
				return nil, err
			}
			among[v] = true
		}
		return func(v flat.Value) bool { return among[v] == (operator == "in") }, nil
	}
	want, err := operandOf(name, operand)
	if err != nil {
		return nil, err
	}
	switch operator {
	case "eq":
		return func(v flat.Value) bool { return v == want }, nil
	case "ne":
		return func(v flat.Value) bool { return v != want }, nil
	case "gt", "gte", "lt", "lte":
		if want.Kind == flat.Bool {
			return nil, invalidFilter("%s.%s compares strings or numbers.", name, operator)
		}
		return func(v flat.Value) bool { return v.Kind == want.Kind && ordered(operator, compareValues(v, want)) }, nil
	}
	return nil, invalidFilter("%.32q is not an operator.", operator)
}

// compareValues orders two values of the same kind.
func compareValues(a, b flat.Value) int {
	return cmp.Or(strings.Compare(a.Text, b.Text), cmp.Compare(a.Number, b.Number))
}

func ordered(operator string, sign int) bool {
	switch operator {
	case "gt":
		return sign > 0
	case "gte":
		return sign >= 0
	case "lt":
		return sign < 0
	default:
		return sign <= 0
	}
}

func operandOf(name string, operand any) (flat.Value, error) {
	v := valueOf(operand)
	if v.Kind == flat.Other || v.Kind == flat.Absent || len(v.Text) > maxOperand || strings.Contains(v.Text, "\x00") {
		return v, invalidFilter("%s is compared with strings of at most %d bytes without NUL, numbers and booleans.", name, maxOperand)
	}
	return v, nil
}

// valueOf returns a value of metadata in the form for filters.
func valueOf(value any) flat.Value {
	switch v := value.(type) {
	case string:
		return flat.Value{Kind: flat.Text, Text: v}
	case float64:
		return flat.Value{Kind: flat.Number, Number: v + 0} // -0 becomes 0
	case int:
		return flat.Value{Kind: flat.Number, Number: float64(v)}
	case int64:
		return flat.Value{Kind: flat.Number, Number: float64(v)}
	case bool:
		n := 0.0
		if v {
			n = 1
		}
		return flat.Value{Kind: flat.Bool, Number: n}
	default:
		return flat.Value{Kind: flat.Other}
	}
}

// plain returns a value in the form for engines: a string, a float64, a bool, or nil for any other,
// which equals nothing.
func plain(value any) any {
	switch v := valueOf(value); v.Kind {
	case flat.Text:
		return v.Text
	case flat.Number:
		return v.Number
	case flat.Bool:
		return v.Number == 1
	default:
		return nil
	}
}

func plainValues(list []any) []any {
	out := make([]any, len(list))
	for i, value := range list {
		out[i] = plain(value)
	}
	return out
}

// valuesOf returns the values of the filterable keys of a document.
func valuesOf(metadata map[string]any, keys []string) []flat.Value {
	values := make([]flat.Value, len(keys))
	for i, key := range keys {
		if v, ok := metadata[key]; ok {
			values[i] = valueOf(v)
		}
	}
	return values
}

// rows returns the rows of a view that match the condition.
func (c *condition) rows(view *flat.View) flat.Bitmap {
	if c.group == "" {
		return view.Where(c.key, c.test)
	}
	out := c.parts[0].rows(view)
	for i := range c.parts[1:] {
		if part := &c.parts[i+1]; c.group == "or" {
			out = out.Or(part.rows(view))
		} else {
			out = out.And(part.rows(view))
		}
	}
	if c.group == "not" {
		return view.All().Without(out)
	}
	return out
}

// holds reports whether a document with these values matches the condition.
func (c *condition) holds(values []flat.Value) bool {
	switch c.group {
	case "":
		return c.test(values[c.key])
	case "not":
		return !c.parts[0].holds(values)
	case "or":
		return slices.ContainsFunc(c.parts, func(part condition) bool { return part.holds(values) })
	default:
		return !slices.ContainsFunc(c.parts, func(part condition) bool { return !part.holds(values) })
	}
}

// forEngine returns the condition in the form for an [Engine].
func (c *condition) forEngine() *Condition {
	if c == nil {
		return nil
	}
	if c.group == "" {
		return &c.data
	}
	out := &Condition{Group: c.group}
	for i := range c.parts {
		out.Parts = append(out.Parts, *c.parts[i].forEngine())
	}
	return out
}
