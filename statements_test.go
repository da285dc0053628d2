package kit_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestGoldenStatements lists every place where the SQL of the two databases
// differs, so that a change of one text is read next to the other.
func TestGoldenStatements(t *testing.T) {
	var list strings.Builder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			for _, pair := range differing(files, declaration, file.Name.Name == "database") {
				fmt.Fprintf(&list, "%s %s\n\tsqlite:   %s\n\tpostgres: %s\n", filepath.ToSlash(path), declared(declaration, pair.at), pair.sqlite, pair.postgres)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/statements.golden", list.String())
}

type differingText struct {
	at               token.Pos
	sqlite, postgres string
}

// differing returns the calls of database.Text in a declaration, which may be of
// that package itself.
func differing(files *token.FileSet, in ast.Decl, own bool) (pairs []differingText) {
	ast.Inspect(in, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.SelectorExpr:
			if from, ok := f.X.(*ast.Ident); !ok || from.Name != "database" || f.Sel.Name != "Text" {
				return true
			}
		case *ast.Ident:
			if !own || f.Name != "Text" {
				return true
			}
		default:
			return true
		}
		pairs = append(pairs, differingText{call.Pos(), textOf(files, call.Args[0]), textOf(files, call.Args[1])})
		return true
	})
	return pairs
}

// textOf is an argument on one line: the text of a literal, the source of another.
func textOf(files *token.FileSet, argument ast.Expr) string {
	var source bytes.Buffer
	if literal, ok := argument.(*ast.BasicLit); ok {
		if text, err := strconv.Unquote(literal.Value); err == nil {
			source.WriteString(text)
		}
	} else if err := printer.Fprint(&source, files, argument); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(source.String()), " ")
}

// declared is the name of the function or variable at a position.
func declared(in ast.Decl, at token.Pos) string {
	switch d := in.(type) {
	case *ast.FuncDecl:
		return d.Name.Name
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && v.Pos() <= at && at < v.End() {
				return v.Names[0].Name
			}
		}
	}
	return "?"
}
