package rating_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// numeric are the files whose arithmetic must not depend on the processor.
var numeric = []string{"elo.go", "glicko.go", "trueskill.go", "openskill.go",
	"internal/detmath/detmath.go", "internal/detmath/normal.go"}

// exact are the members of package math that are the same everywhere: those that IEEE 754 defines
// to the last bit, and constants.
var exact = []string{"Abs", "Copysign", "Floor", "Frexp", "Inf", "Ldexp", "Ln10", "Ln2", "Pi", "Sqrt", "Sqrt2"}

// TestNoFusedProducts checks the rule of the language specification that prevents fusing x*y + z in
// the numeric files: every product is converted explicitly or only multiplied and divided further.
// It reads the source, so that it fails on processors without fused instructions, too.
func TestNoFusedProducts(t *testing.T) {
	for _, name := range numeric {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var stack []ast.Node
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				stack = stack[:len(stack)-1]
				return true
			}
			at := files.Position(n.Pos())
			switch n := n.(type) {
			case *ast.GenDecl:
				if n.Tok == token.CONST {
					return false // computed exactly by the compiler
				}
			case *ast.AssignStmt:
				if n.Tok == token.MUL_ASSIGN {
					t.Errorf("%s: *= does not round its product", at)
				}
			case *ast.BinaryExpr:
				if n.Op == token.MUL && !rounded(stack) {
					t.Errorf("%s: this product is not converted explicitly", at)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "math" && !slices.Contains(exact, n.Sel.Name) {
					t.Errorf("%s: math.%s is not the same on every processor", at, n.Sel.Name)
				}
			}
			stack = append(stack, n)
			return true
		})
	}
}

// rounded reports whether a product under these nodes is the operand of a conversion, another
// product or a quotient, or is a constant.
func rounded(stack []ast.Node) bool {
	switch parent := stack[len(stack)-1].(type) {
	case *ast.CallExpr:
		name, ok := parent.Fun.(*ast.Ident)
		return ok && name.Name == "float64"
	case *ast.BinaryExpr:
		return parent.Op == token.QUO || parent.Op == token.MUL
	default:
		return false
	}
}

// TestNumericFiles finds files with arithmetic that are missing in the list above.
func TestNumericFiles(t *testing.T) {
	for _, pattern := range []string{"*.go", "internal/detmath/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") || slices.Contains(numeric, name) {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(source), "math.Sqrt") || strings.Contains(string(source), "detmath.") {
				t.Errorf("%s computes and is not on the list", name)
			}
		}
	}
}

// TestBits plays one random league with each algorithm and compares every state, to the bit, with
// the result on amd64 when this test was written.
func TestBits(t *testing.T) {
	for id, want := range map[string]string{
		"elo":       "3f31d637372c6c87dc08a5ef31ce0d81",
		"glicko":    "dac104ca07850fd2772c101ab6b1cc50",
		"trueskill": "f21ffdd58374e7b0869f2c4b9dcc3a92",
		"openskill": "edb599c2ca204eb3c7d1168a2add2a86",
	} {
		if got := league(t, id); got != want {
			t.Errorf("%s: the league ends at %s, not %s", id, got, want)
		}
	}
}

// league rates 500 games between 12 players and returns a hash of all states.
func league(t *testing.T, id string) string {
	r := bind(t, id, nil)
	random := rand.New(rand.NewPCG(7, 11))
	states := make([]string, 12)
	for i := range states {
		states[i] = r.Initial().State
	}
	hash := sha256.New()
	for range 500 {
		game, order := random.Perm(len(states))[:2], []int{1, 2}
		if id == "trueskill" || id == "openskill" {
			game, order = random.Perm(len(states))[:8], []int{1, 2, 3, 4, 5, 6, 7, 8}
		}
		for i := 1; i < len(order); i++ {
			if random.IntN(5) == 0 {
				order[i] = order[i-1]
			}
		}
		sides := sidesOf(order, game, states)
		after, err := r.Update(sides)
		if err != nil {
			t.Fatal(err)
		}
		for i, player := range game {
			states[player] = after[i][0].State
			fmt.Fprintln(hash, states[player])
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}
