SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
STACK := tests/stack/stack

# Which packages and benchmarks; how long each fuzz test runs.
PKG ?= ./...
BENCH ?= .
FUZZTIME ?= 10s

.PHONY: help build test lint bench demo fuzz generate clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the program, bin/coldtier
	CGO_ENABLED=0 go build -trimpath -o bin/coldtier ./cmd/coldtier

test: ## all tests on private real servers, which it installs and starts
	@$(STACK) run --set all tests/all

lint: ## gofmt, generated code, go vet and golangci-lint, which it builds once
	@bad=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); if [ -n "$$bad" ]; then echo "not gofmt'ed:"; echo "$$bad"; exit 1; fi
	restore/rpc/generate --check
	go vet ./...
	go vet -tags crashtest ./cmd/...
	.ci/golangci-lint run

bench: ## benchmarks on private real servers (PKG=./archive/warm BENCH=Scan)
	@$(STACK) run --set 1 go test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 1h $(PKG)

demo: ## a few days of chat through the real commands, from warm to cold
	@tests/demo/demo

fuzz: ## each fuzz test for a short while (FUZZTIME=10s)
	@git grep -hE '^func Fuzz' -- '*_test.go' >/dev/null || { echo "no fuzz tests"; exit 1; }
	@git grep -E '^func Fuzz' -- '*_test.go' | sed -E 's/^(.*)\/[^/]*:func (Fuzz[A-Za-z0-9_]*).*/\1 \2/' | while read -r dir name; do \
	  go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$dir" </dev/null; done

generate: ## the Go code of restore/rpc/coldtier/v1/history.proto
	restore/rpc/generate

clean: ## removes what build made
	rm -rf bin
