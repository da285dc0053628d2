// Crosscheck type-checks the module and its tests for systems that they are not
// built on, given as windows/amd64 and so on. Compiling everything for another system
// takes minutes; this reads the sources of what is imported, without the bodies of its
// functions, and takes seconds.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	failed := false
	for _, system := range os.Args[1:] {
		faults, err := check(".", system)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, fault := range faults {
			fmt.Fprintf(os.Stderr, "%s: %v\n", system, fault)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

// check returns what is wrong with the module in a folder on a system.
func check(dir, system string) (faults []error, err error) {
	goos, arch, ok := strings.Cut(system, "/")
	if !ok {
		return nil, fmt.Errorf("%s is not a system such as windows/amd64", system)
	}
	packages, err := list(dir, goos, arch)
	if err != nil {
		return nil, err
	}
	c := checker{files: token.NewFileSet(), known: map[string]*types.Package{"unsafe": types.Unsafe}, sizes: types.SizesFor("gc", arch)}
	for _, p := range packages { // what is imported comes before what imports it
		if err := c.add(p); err != nil {
			return nil, err
		}
	}
	return c.faults, nil
}

// list returns the packages of a module, its tests, and everything that they import.
func list(dir, goos, arch string) (packages []listed, err error) {
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0")
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// checker checks packages in the order of their imports.
type checker struct {
	files  *token.FileSet
	known  map[string]*types.Package
	sizes  types.Sizes
	faults []error
}

func (c *checker) add(p listed) error {
	if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // the main function of a test, which go makes
		return nil
	}
	own := p.Module != nil && p.Module.Main
	var files []*ast.File
	for _, name := range p.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		file, err := parser.ParseFile(c.files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	config := types.Config{
		Importer: imports{c.known, p.ImportMap}, Sizes: c.sizes, IgnoreFuncBodies: !own, FakeImportC: true,
		Error: func(err error) {
			if own {
				c.faults = append(c.faults, err)
			}
		},
	}
	path, _, _ := strings.Cut(p.ImportPath, " ") // "path [path.test]" is path, with its tests
	checked, _ := config.Check(path, c.files, files, nil)
	c.known[p.ImportPath] = checked
	return nil
}

// imports finds what a package imports among those that are known.
type imports struct {
	known map[string]*types.Package
	names map[string]string
}

func (i imports) Import(path string) (*types.Package, error) {
	if name, ok := i.names[path]; ok {
		path = name
	}
	if p := i.known[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not listed", path)
}
