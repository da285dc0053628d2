# Every target works on a fresh clone; `make help` lists them.
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: help check fmt vet cross crossvet lint tidy race deps fuzz soak bench

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

check: fmt vet cross lint tidy deps race ## everything a change must pass, apart from go test ./...

fmt: ## refuse files that gofmt would change
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'run gofmt -w on these'; exit 1; }

vet: ## go vet
	go vet ./...

cross: ## type-check for the other systems that the kit runs on
	go run ./internal/crosscheck windows/amd64 darwin/arm64 linux/386 linux/arm64

crossvet: ## go vet for them, which compiles everything for each: a quarter of an hour
	GOOS=windows go vet ./...
	GOOS=darwin GOARCH=arm64 go vet ./...
	GOARCH=386 go vet ./...
	GOARCH=arm64 go vet ./...

lint: ## golangci-lint with the dependency fence
	$(GOLANGCI) run ./...

tidy: ## refuse a go.mod that go mod tidy would change
	go mod tidy -diff

deps: ## refuse a module that the checked-in list does not name
	@go list -m all | cut -d' ' -f1 | LC_ALL=C sort | diff -u DEPENDENCIES - || { echo 'a dependency changed: see DESIGN.md, then update DEPENDENCIES'; exit 1; }

# Left out of the detector's sight: SQLite's own code, translated from C, of which
# one goroutine at a time uses a connection, and the hashes of passwords. Together
# they take most of the time.
race: ## the tests under the race detector (needs a C compiler)
	go test -race -short -timeout 20m -gcflags='modernc.org/...=-race=false' -gcflags='golang.org/x/crypto/...=-race=false' ./...

fuzz: ## each fuzz target for ten seconds
	@for pkg in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
		go test -run '^$$' -fuzz "^$$f$$" -fuzztime 10s $$pkg || exit 1; done; done

SOAK := 10m

soak: ## nodes killed and paused, full disks, slow bodies, wrong clocks: make soak SOAK=1h
	KIT_TEST_SOAK=$(SOAK) go test -count=1 -v -timeout 0 ./internal/soak
	KIT_SOAK=1 go test -count=1 -v -run 'TestKill|TestHashes|TestRecall|TestModel$$|TestBatch$$' -timeout 0 ./database ./ledger ./storage ./media ./media/internal/picture ./vector/internal/flat ./leaderboard

bench: ## the comparisons of bench/README.md
	go test -run '^$$' -bench . -benchtime 2s ./bench
