# SMC: make demo, make test. Both set up all they need on a bare machine.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Build results and fetched tools live outside the clone, so that the next clone starts warm.
SMC_CACHE ?= $(HOME)/.cache/smc
export CARGO_TARGET_DIR ?= $(SMC_CACHE)/target
export PATH := $(PATH):/usr/sbin:/sbin:$(HOME)/.cargo/bin
# The RocksDB of all that is built here. What is shipped compiles its own, and links it statically.
ROCKSDB := $(shell sed -n '/^name = "librocksdb-sys"$$/,/^version/s/^version = ".*+\(.*\)"$$/\1/p' Cargo.lock)
export ROCKSDB_LIB_DIR := $(SMC_CACHE)/rocksdb-$(ROCKSDB)
BIN := $(CARGO_TARGET_DIR)/release
CARGO_FLAGS := --release --locked

.PHONY: help setup build dist demo cluster test test-static env quick tidy generate soak simulate simulate-source fuzz fuzz-policy fuzz-traffic fuzz-cost lint deny bench clean-cache restarts walk

help: ## What can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s $$'\t'

setup: ## System packages, RocksDB and the pinned Envoy
	@tests/setup/system-packages
	@tests/setup/rocksdb $(SMC_CACHE)
	@tests/setup/envoy $(SMC_CACHE) >/dev/null

build: setup ## The programs: smc, smc-lab, smc-demo, smc-bookstore
	@cargo build $(CARGO_FLAGS) --workspace --bins

dist: setup ## The shipped program, dist/smc in the target directory, and its symbols beside it, smc.debug
	@env -u ROCKSDB_LIB_DIR SMC_COMMIT=$$(git rev-parse --short HEAD) cargo build --locked --profile dist --package smc --bin smc
	@cd $(CARGO_TARGET_DIR)/dist && objcopy --only-keep-debug smc smc.debug \
	  && objcopy --strip-all --add-gnu-debuglink=smc.debug smc && ls -l smc smc.debug

demo: build ## The bookstore mesh, live; ONCE=1 runs it unattended and judges it
	@SMC_ENVOY=$$(tests/setup/envoy $(SMC_CACHE)) $(BIN)/smc-demo $(if $(filter 1,$(ONCE)),--once)

# A cluster that KUBECONFIG names must be able to pull IMAGE and the others; without it, one of this machine starts.
IMAGE ?= smc:test
ENVOY_IMAGE ?= envoy:test
BOOKSTORE_IMAGE ?= bookstore:test
cluster: build ## A real Kubernetes with SMC and the bookstore in it, until Ctrl-C; KUBECONFIG=... uses another one
	@export SMC_KUBERNETES=$$(tests/setup/kubernetes $(SMC_CACHE)) SMC_ENVOY=$$(tests/setup/envoy $(SMC_CACHE)); \
	if [ -n "$${KUBECONFIG:-}" ]; then \
	  $(BIN)/smc-cluster mesh --kubeconfig "$$KUBECONFIG" --image $(IMAGE) --envoy-image $(ENVOY_IMAGE) \
	    --bookstore-image $(BOOKSTORE_IMAGE); \
	else \
	  $(BIN)/smc-cluster up --mesh; \
	fi

# Kubernetes is compiled before anything else needs the processors.
test: setup ## All tests, with real Envoys and a real Kubernetes
	@export SMC_ENVOY=$$(tests/setup/envoy $(SMC_CACHE)) SMC_NGINX=$$(tests/setup/nginx $(SMC_CACHE)); \
	tests/setup/with-cluster $(SMC_CACHE) tests/lanes $(CARGO_FLAGS) --workspace

test-static: setup ## The storage tests with RocksDB compiled and linked statically, as in what is shipped
	@env -u ROCKSDB_LIB_DIR CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/static cargo test $(CARGO_FLAGS) -p smc-raft

env: ## What cargo needs by hand: eval "$$(make env)"
	@echo "export CARGO_TARGET_DIR='$(CARGO_TARGET_DIR)' ROCKSDB_LIB_DIR='$(ROCKSDB_LIB_DIR)'"

# Without RocksDB (the feature `rocks`), so that no C++ is compiled.
QUICK := types host authority model xds api sidecar mesh decode policy
SHELL_PACKAGES := smc $(addprefix smc-,issuing server directory kubernetes)
quick: ## The tests of the pure packages and of the tree, and a check of the shell with its tests; in a minute
	@cargo test --locked $(addprefix -p smc-,$(QUICK)) -p smc-tidy --lib --test translation --test memory --test tidy
	@cargo check --locked $(addprefix -p ,$(SHELL_PACKAGES)) --no-default-features --lib --tests

tidy: ## Arrows between packages and modules, words, documents; in seconds, and part of test
	@cargo test $(CARGO_FLAGS) -p smc-tidy

# Each step reads what the one before it wrote.
generate: build ## What follows from the kinds: definitions, rights in the chart, templates; after a change of a kind
	@$(BIN)/smc crds --dir charts/smc-crds/templates
	@SMC_GOLDEN=write cargo test $(CARGO_FLAGS) --workspace --lib -- --exact \
	  install::manifests::tests::the_chart_has_the_rights_that_follow_from_the_kinds
	@deploy/render "$$(tests/setup/kubernetes $(SMC_CACHE) helm)/helm"

soak: build ## Three replicas, then five, killed, stopped and cut off a hundred times; SMC_SEED, SMC_REPLICAS replay one
	@for replicas in $${SMC_REPLICAS:-3 5}; do \
	  SMC_REPLICAS=$$replicas SMC_ROUNDS=$${SMC_ROUNDS:-100} \
	    cargo test $(CARGO_FLAGS) --workspace --test cluster -- --nocapture nothing_acknowledged; \
	done

restarts: build ## One controller, then three, over a real API server, restarted a hundred times under real Envoys; SMC_ROUNDS, SMC_REPLICAS change one
	@export SMC_KUBERNETES=$$(tests/setup/kubernetes $(SMC_CACHE)) SMC_ENVOY=$$(tests/setup/envoy $(SMC_CACHE)); \
	for replicas in $${SMC_REPLICAS:-1 3}; do \
	  SMC_REPLICAS=$$replicas SMC_ROUNDS=$${SMC_ROUNDS:-100} \
	    cargo test $(CARGO_FLAGS) --workspace --test kubernetes -- --nocapture restarts_of_controllers; \
	done

walk: build ## Twenty walks of ten steps through what may happen to an installation under traffic, in a real cluster; SMC_SEED, SMC_WALKS, SMC_STEPS change that
	@export SMC_KUBERNETES=$$(tests/setup/kubernetes $(SMC_CACHE)) SMC_ENVOY=$$(tests/setup/envoy $(SMC_CACHE)) SMC_STEPS=$${SMC_STEPS:-10}; \
	first=$${SMC_SEED:-1}; failed=; for seed in $$(seq $$first $$((first + $${SMC_WALKS:-20} - 1))); do \
	  SMC_SEED=$$seed cargo test $(CARGO_FLAGS) --workspace --test kubernetes -- --nocapture after_each_step_of_a_walk || failed+=" $$seed"; \
	done; [ -z "$$failed" ] || { echo "walks that failed:$$failed"; exit 1; }

simulate: build ## The simulated clusters with 300 seeds; SMC_SEED, SMC_SEEDS name the first and how many
	@SMC_SEEDS=$${SMC_SEEDS:-300} \
	  cargo test $(CARGO_FLAGS) --workspace --test simulation -- --nocapture

simulate-source: build ## The Kubernetes source on a model API server, with 20000 seeds; SMC_SURVEY=1 counts what fails
	@SMC_SEEDS=$${SMC_SEEDS:-20000} \
	  cargo test $(CARGO_FLAGS) --workspace --test simulation -- --nocapture source::

fuzz: setup ## Feeds TARGET (xds, manifests, expressions, names, pods, certificates, reviews, administration, raft, wal, backups) for SECONDS (300); what is new goes to fuzz/found
	@RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tests/setup/instrumented \
	  cargo build $(CARGO_FLAGS) --workspace --features smc-fuzz/libfuzzer --bin smc-fuzz
	@mkdir -p fuzz/found/$(TARGET)
	@SMC_FUZZ_TARGET=$(TARGET) $(BIN)/smc-fuzz -max_total_time=$(or $(SECONDS),300) -timeout=10 \
	  -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 -artifact_prefix=fuzz/found/$(TARGET)- \
	  fuzz/found/$(TARGET) fuzz/corpus/$(TARGET)

fuzz-policy: setup ## Policy in 2,000 random meshes, real Envoys against the oracle; SMC_SEED, SMC_CASES name the first and how many
	@SMC_CASES=$${SMC_CASES:-2000} SMC_ENVOY=$$(tests/setup/envoy $(SMC_CACHE)) \
	  cargo test $(CARGO_FLAGS) --workspace --test oracle -- --nocapture envoys_

fuzz-traffic: build ## 5,000 dialogues of HTTP that are drawn at random, through two real sidecars and directly; SMC_SEED, SMC_DIALOGUES name the first and how many
	@SMC_DIALOGUES=$${SMC_DIALOGUES:-5000} SMC_ENVOY=$$(tests/setup/envoy $(SMC_CACHE)) \
	  cargo test $(CARGO_FLAGS) --workspace --test e2e -- --nocapture dialogues_that_are_drawn

fuzz-cost: build ## Hostile meshes beside a neighbour, in a real controller, for SMC_SECONDS (3600); SMC_SEED names the first
	@SMC_SECONDS=$${SMC_SECONDS:-3600} \
	  cargo test $(CARGO_FLAGS) --workspace --test cluster -- --nocapture a_hostile_namespace

lint: setup ## Formatting and clippy, warnings denied; adds them to the toolchain where rustup can
	@tests/setup/linters
	@cargo fmt --all --check
	@cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings
	@cargo clippy $(CARGO_FLAGS) $(addprefix -p ,$(SHELL_PACKAGES)) --no-default-features --lib --tests -- -D warnings

deny: ## Licences, sources and bans of all dependencies (deny.toml); needs cargo-deny. Not part of CI
	@cargo deny check licenses bans sources

bench: setup ## The benchmarks; see benches/README.md
	@cargo build --locked --profile bench --workspace --bins
	@SMC_ENVOY=$$(tests/setup/envoy $(SMC_CACHE)) SMC_KUBERNETES=$$(tests/setup/kubernetes $(SMC_CACHE)) \
	  cargo bench --locked --workspace

clean-cache: ## Removes build results and fetched tools
	@rm -rf $(SMC_CACHE)
