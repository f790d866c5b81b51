# `make` lists what there is to make. CI runs `make check` and nothing else.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
SBOM := go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -std -noserial -notimestamp -version $(VERSION)
# What a release is built by: nothing of this machine, of its caches or of git gets in.
RELEASE := CGO_ENABLED=0 GOFLAGS= GOAMD64=v1 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
# A count, not a time: at the end of a time go test can take its own deadline for a
# finding ("context deadline exceeded", golang/go#75804).
FUZZTIME ?= 10000x
BENCH ?= .
COUNT ?= 1
KILLS ?= 300
REPRO ?= repro

.PHONY: test-once dist-some help build run demo test race lint fmt docs fuzz bench e2e clients page cross dist repro kit check clean

help: ## show this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-8s %s\n", $$1, $$2}'

build: ## build ./retryproxy, static, for this machine
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o retryproxy .

run: build ## start it on the built-in configuration
	./retryproxy serve

demo: build ## a misbehaving upstream and a walk-through
	./retryproxy demo

test: ## all tests, once, with the race detector
	go test -race -timeout 15m ./...
	go test ./limiter ./simulate # the tests that are long and have one goroutine, where there are no races

race: ## look for flaky tests: PKG=./limiter COUNT=20
	go test -race -count=$(if $(filter 1,$(COUNT)),20,$(COUNT)) $(or $(PKG),./...)

lint: ## go vet and golangci-lint
	go vet ./...
	$(LINT) run

fmt: ## format all files as lint wants them
	$(LINT) fmt

docs: ## write the tests found into docs/cases.md
	go test -run TestCases . -update

fuzz: ## every fuzzer for FUZZTIME (10000x, or a time)
	@{ grep -rl --include='*_test.go' '^func Fuzz' . || true; } | xargs -r -n1 dirname | sort -u | while read -r dir; do \
	  for name in $$(go test -list '^Fuzz' "$$dir" | grep '^Fuzz'); do \
	    echo "fuzz $$dir $$name"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$dir"; \
	  done; \
	done

bench: ## benchmarks with allocations: BENCH=regexp COUNT=n PKG=./limiter
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count=$(COUNT) $(or $(PKG),./...)

e2e: build ## the real binary: the walk-through and the end-to-end tests
	./retryproxy demo
	RETRYPROXY_KILLS=$(KILLS) go test -count=1 -run 'E2E|ThousandOrders' . # some three minutes

clients: ## curl, Python, Node, Go, Java and Chromium through the real binary
	npm ci --prefix clients/testdata/node --no-audit --no-fund --loglevel error
	RETRYPROXY_CLIENTS=all go test -race -count=1 -parallel 6 ./clients

page: ## the page in Chromium: by hand and keys, narrow, in both languages, with axe; screenshots in dist/page
	npm ci --prefix dashboard/testdata --no-audit --no-fund --loglevel error
	mkdir -p dist/page
	RETRYPROXY_PAGE=all go test -count=1 -artifacts -outputdir dist/page -run TestPage .

cross: ## build for Linux, macOS and Windows on amd64 and arm64 into dist/
	@for p in $(PLATFORMS); do \
	  out=dist/retryproxy-$${p%/*}-$${p#*/}; [[ $$p == windows/* ]] && out=$$out.exe; \
	  echo "$$out"; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(RELEASE) -o "$$out" .; \
	done
	GOOS=windows CGO_ENABLED=0 go vet -trimpath ./... # reuses what was just built

dist: ## a release in dist/: the binaries of all platforms, their SBOMs, checksums
	rm -rf dist
	$(MAKE) cross $(REPRO)
	@cd dist; for f in retryproxy-*; do \
	  echo "$$f.cdx.json"; \
	  $(SBOM) -output "$$f.cdx.json" "$$f"; \
	  go version -m "$$f" | awk '$$1 == "dep" {print $$2 "@" $$3}' | while read -r dep; do \
	    grep -qF "$$dep" "$$f.cdx.json" || { echo "the SBOM lacks $$dep" >&2; exit 1; }; \
	  done; \
	done
	@cd dist; $$(command -v sha256sum || echo shasum -a 256) retryproxy-* >SHA256SUMS; cat SHA256SUMS

repro: ## build one of dist/ again, in another folder and without a cache: the same bytes?
	@dir=$$(mktemp -d); trap 'chmod -R u+w "$$dir"; rm -rf "$$dir"' EXIT; \
	git ls-files -z --cached --others --exclude-standard | tar -c --null --files-from - | tar -x -C "$$dir"; \
	cd "$$dir"; GOOS=linux GOARCH=amd64 GOCACHE="$$dir/.cache" $(RELEASE) -o again .; \
	cmp again "$(CURDIR)/dist/retryproxy-linux-amd64"; echo "the same bytes again"

kit: ## check deploy/ by the types of Kubernetes and Compose
	cd deploy/testdata/strict && go vet . && go test -count=1 .

check: export RETRYPROXY_CLIENTS := off# in the target test; clients runs them
check: FUZZTIME := 3000x
check: KILLS := 120
check: test-once dist-some kit fuzz e2e clients page ## all that CI runs, within its 20 minutes

# Each test runs once, and of a release what shows that it can be made.
test-once: lint
	RETRYPROXY_E2E=off $(MAKE) test
dist-some:
	$(MAKE) dist REPRO= PLATFORMS='linux/amd64 windows/amd64'

clean: ## remove what was built
	rm -rf retryproxy retryproxy.exe dist
