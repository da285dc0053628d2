package secrets

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/seal"
)

// DefaultOverlap is how long the previous version is valid after a rotation.
const DefaultOverlap = 24 * time.Hour

// MinEvery is the minimum time between two scheduled rotations.
const MinEvery = time.Hour

// Secret declares a secret: its name, its blocks, and how its next version is created.
type Secret struct {
	// Name matches ^[a-z][a-z0-9-]{0,62}$, such as "storage-bucket-credentials".
	Name string
	// Blocks are the blocks of the secret; at least one.
	Blocks []Block
	// Check refuses invalid values, such as a credential of another environment, with
	// secrets/invalid_value. It is called with every complete block, before a write and on reads
	// from read-only providers. Its error text must be a sentence that quotes no value, because it
	// is shown to the operator.
	Check func(Blocks) error
	// Rotator creates the next version automatically. Without one the rotation is manual: an
	// operator enters the new values.
	Rotator *Rotator
	// Every is the interval of automatic rotations, at least [MinEvery]; 0 means on request only.
	Every time.Duration
	// Overlap is how long after a rotation [Handle.Previous] returns the previous version; 0 means
	// [DefaultOverlap].
	Overlap time.Duration
}

// Block is a part of a secret that is either complete or absent. Names match
// ^[A-Za-z][A-Za-z0-9_]{0,62}$; "rotation" is reserved.
type Block struct {
	Name string
	// Required fields are those of a complete block; Optional ones may be added.
	Required, Optional []string
	// Together lists groups of Optional fields that must be set all or none, such as the two halves
	// of a key pair.
	Together [][]string
}

// Rotator changes a secret together with the system it belongs to, in four steps. Each step may be
// repeated after a crash or a failure, even if it had succeeded, so each must be idempotent. The
// texts of their errors and panics are recorded nowhere, because they may quote the secret.
type Rotator struct {
	// Create creates the next blocks; current is nil for the first version, and in a requested
	// rotation for one that does not open with the master keys. It is not called again once its
	// result is stored.
	Create func(ctx context.Context, current Blocks) (Blocks, error)
	// Set makes the system accept the next blocks as well as the current ones.
	Set func(ctx context.Context, current, next Blocks) error
	// Test checks that the system accepts the next blocks.
	Test func(ctx context.Context, next Blocks) error
	// Finish runs a minute after all nodes were notified of the next version and may disable the
	// previous one, which is nil where current was.
	Finish func(ctx context.Context, previous, current Blocks) error
}

var (
	namePattern  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	fieldPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,62}$`)
)

func (s Secret) mode() string {
	if s.Rotator == nil {
		return "manual"
	}
	return "automatic"
}

func (s Secret) overlap() time.Duration {
	if s.Overlap == 0 {
		return DefaultOverlap
	}
	return s.Overlap
}

// validate checks the form of a declaration.
func (s Secret) validate() error {
	faults := capability.Faults{Capability: Name}
	key := "secret " + s.Name
	if !namePattern.MatchString(s.Name) {
		faults.Add(key, s.Name, "is not a name of a secret", "use lower case letters, digits and hyphens, 63 at most")
	}
	if len(s.Blocks) == 0 {
		faults.Add(key, nil, "has no blocks", "declare what it consists of")
	}
	var seen []string
	for _, b := range s.Blocks {
		if slices.Contains(seen, b.Name) || b.Name == rotationBlock || !fieldPattern.MatchString(b.Name) {
			faults.Add(key, b.Name, "is not a name of a block, or one that is taken", "give each block a word of its own")
		}
		seen = append(seen, b.Name)
		b.validate(&faults, key+"."+b.Name)
	}
	if r := s.Rotator; r != nil && (r.Create == nil || r.Set == nil || r.Test == nil || r.Finish == nil) {
		faults.Add(key, nil, "has a rotator without all four steps", "give Create, Set, Test and Finish")
	}
	if s.Every != 0 && (s.Rotator == nil || s.Every < MinEvery) {
		faults.Add(key, s.Every, "cannot be rotated this often", "give a Rotator and at least an hour")
	}
	if s.Overlap < 0 {
		faults.Add(key, s.Overlap, "is a negative overlap", "give the time the version before is good for")
	}
	return faults.Err()
}

func (b Block) validate(faults *capability.Faults, key string) {
	var seen []string
	for _, field := range b.fields() {
		if slices.Contains(seen, field) || !fieldPattern.MatchString(field) {
			faults.Add(key, field, "is not a name of a field, or one that is taken", "give each field a word of its own")
		}
		seen = append(seen, field)
	}
	if len(seen) == 0 {
		faults.Add(key, nil, "has no fields", "declare what it consists of")
	}
	for _, group := range b.Together {
		for _, field := range group {
			if !slices.Contains(b.Optional, field) {
				faults.Add(key, field, "is in a group of optional fields and is not optional", "list it under Optional")
			}
		}
	}
}

func (b Block) fields() []string { return append(slices.Clone(b.Required), b.Optional...) }

// missing returns the sorted names of the fields that are missing for a complete block.
func (b Block) missing(fields Fields) []string {
	var missing []string
	lacks := func(field string) bool { return fields[field].Empty() }
	for _, field := range b.Required {
		if lacks(field) {
			missing = append(missing, field)
		}
	}
	for _, group := range b.Together {
		if slices.ContainsFunc(group, func(field string) bool { return !lacks(field) }) {
			for _, field := range group {
				if lacks(field) && !slices.Contains(missing, field) {
					missing = append(missing, field)
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// half is the details of a refusal of an incomplete block.
type half struct {
	Block   string   `json:"block"`
	Missing []string `json:"missing"`
}

// check refuses undeclared blocks and fields with kit/invalid_request, and incomplete blocks with
// secrets/incomplete_block, which names block and missing fields.
func (s Secret) check(blocks Blocks) error {
	var halves []half
	known := 0
	for _, b := range s.Blocks {
		fields, given := blocks[b.Name]
		if !given {
			continue
		}
		known++
		for field := range fields {
			if !slices.Contains(b.fields(), field) {
				return capability.ErrInvalidRequest.Saying("The block %s takes the fields %s.", b.Name, strings.Join(b.fields(), ", "))
			}
		}
		if missing := b.missing(fields); len(missing) > 0 || len(fields) == 0 {
			halves = append(halves, half{b.Name, append([]string{}, missing...)})
		}
	}
	if known < len(blocks) {
		return s.unknownBlock()
	}
	if len(halves) > 0 {
		return incomplete(halves)
	}
	return nil
}

// permit refuses blocks that the declaration's Check refuses, with secrets/invalid_value. A panic
// is refused without its text, which may quote a value.
func (s Secret) permit(blocks Blocks) (err error) {
	if s.Check == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			err = ErrInvalidValue
		}
	}()
	if refused := s.Check(maps.Clone(blocks)); refused != nil {
		return ErrInvalidValue.Saying("%s", refused.Error())
	}
	return nil
}

// checkChange is check for an operator's change, which may also remove blocks.
func (s Secret) checkChange(change Blocks) error {
	given, removed := change.split()
	for _, name := range removed {
		if !slices.Contains(s.blockNames(), name) {
			return s.unknownBlock()
		}
	}
	return s.check(given)
}

// checkEvery refuses a change that does not name every block, with secrets/incomplete_block: such a
// change needs the stored values, which do not open.
func (s Secret) checkEvery(change Blocks) error {
	var halves []half
	var names []string
	for _, b := range s.Blocks {
		if _, named := change[b.Name]; !named {
			halves = append(halves, half{b.Name, append([]string{}, b.missing(nil)...)})
			names = append(names, b.Name)
		}
	}
	if len(halves) == 0 {
		return nil
	}
	return ErrIncompleteBlock.Saying("The stored values of %s do not open with the master keys of this run. "+
		"Put the key that they were sealed with into %s, or give all blocks anew, null for one that is not used; not given: %s.",
		s.Name, seal.Variable, strings.Join(names, ", ")).With(halves)
}

func (s Secret) unknownBlock() error {
	return capability.ErrInvalidRequest.Saying("The secret %s has the blocks %s.", s.Name, strings.Join(s.blockNames(), ", "))
}

func incomplete(halves []half) error {
	texts := make([]string, len(halves))
	for i, h := range halves {
		texts[i] = fmt.Sprintf("%s lacks %s", h.Block, strings.Join(h.Missing, ", "))
		if len(h.Missing) == 0 {
			texts[i] = h.Block + " is empty"
		}
	}
	return ErrIncompleteBlock.Saying("A block is given in full or not at all: %s.", strings.Join(texts, "; ")).With(halves)
}

func (s Secret) blockNames() []string {
	names := make([]string, len(s.Blocks))
	for i, b := range s.Blocks {
		names[i] = b.Name
	}
	return names
}

// complete returns the blocks that are declared and complete, and the names of the incomplete ones.
// An operator may have written anything to a provider.
func (s Secret) complete(blocks Blocks) (whole Blocks, halves []string) {
	whole = make(Blocks, len(blocks))
	maps.Copy(whole, blocks)
	for name, fields := range blocks {
		i := slices.IndexFunc(s.Blocks, func(b Block) bool { return b.Name == name })
		if i < 0 || len(s.Blocks[i].missing(fields)) > 0 {
			delete(whole, name)
		}
		if i >= 0 && whole[name] == nil {
			halves = append(halves, name)
		}
	}
	slices.Sort(halves)
	return whole, halves
}
