// Package provoked records, in tests, which refusals the rows of the route table
// returned, so that a later step compares them with what the OpenAPI
// document says. Packages for tests import it; it does nothing unless
// KIT_TEST_REFUSALS names a folder.
package provoked

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/kitbackend/kit/internal/mount"
)

// Variable names the folder, in which each process has a file of its own: a line
// is method, path, domain and code, separated by spaces.
const Variable = "KIT_TEST_REFUSALS"

func init() {
	// Read while a test runs: go test keeps a result for the variables that the tests have read,
	// and does not see what is read before them.
	folder := sync.OnceValue(func() string { return os.Getenv(Variable) })
	var mu sync.Mutex
	seen := make(map[string]bool)
	mount.Provoked = func(method, path, domain, code string) {
		if folder() == "" {
			return
		}
		line := fmt.Sprintf("%s %s %s %s\n", method, path, domain, code)
		mu.Lock()
		defer mu.Unlock()
		if seen[line] {
			return
		}
		seen[line] = true
		f, err := os.OpenFile(filepath.Join(folder(), fmt.Sprintf("%d.txt", os.Getpid())), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(line)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			panic(fmt.Sprintf("%s: %v", Variable, err))
		}
	}
}
