# Shortcuts: what a target does is a few lines here, or a script. CONTRIBUTING.md lists the scripts that have no target.

.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PORT ?= 6379
OLDEST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1.0/p' Cargo.toml)
# Several for each processor, because a test mostly waits: for the end of a lease, or for a server to start.
RUST_TEST_THREADS ?= $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN))))
# Random schedules of the simulation. The nightly run takes 20,000.
LEASEHOLD_SEEDS ?= 200
# For each scenario of the campaign, one after the other. `scripts/soak` gives them more.
LEASEHOLD_CAMPAIGN_SECONDS ?= 2
export PORT RUST_TEST_THREADS LEASEHOLD_SEEDS LEASEHOLD_CAMPAIGN_SECONDS DESTDIR PREFIX MODULEDIR

# One name for the user, another for the tests: a server given to make is the one the tests start.
ifdef SERVER
export SERVER
export LEASEHOLD_SERVER := $(SERVER)
endif

.PHONY: help run cli check check-oldest test test-ops test-clients test-all peer-suites servers lint publish-dry-run build install uninstall dist bench evidence

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / && !/^help/ { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build the module and start a server with it (PORT=6379 SERVER=/path/to/valkey-server)
	@scripts/setup
	@scripts/run

cli: ## Open redis-cli or valkey-cli on that server (PORT=6379)
	@$$(command -v redis-cli || command -v valkey-cli || echo redis-cli) -p $(PORT)

# All commands of cargo here are for the whole workspace: the same features, so that nothing is built twice.
check: ## Check format, lints, the unit tests of what decides, and the module on a server: in a minute
	@scripts/setup
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --workspace --lib
	cargo test --locked --workspace --test smoke -- each_way

test: ## Run the tests, most of them on real servers (SERVER=)
	@scripts/setup && scripts/setup openssl tmux
	cargo test --locked --workspace --no-fail-fast

test-ops: ## Test docs, images, manifests, packages, alerts and workflows
	@scripts/setup
	cargo test --locked --workspace --no-fail-fast --test ops

test-clients: ## Test the packages for Node, Python, Go and Java, their examples, and all clients by one list (SERVER=)
	@scripts/setup
	@scripts/test-clients

test-all: ## Run the tests on each server that `make servers` brought, and print a table
	@scripts/setup && scripts/setup openssl tmux
	@scripts/test-all

# Not for daily use, so `help` leaves it out.
peer-suites:
	@scripts/server-suites peers

servers: ## Fetch every supported version of Redis and Valkey into servers/ (WANTED="redis-8.6 valkey-9.1")
	@scripts/setup
	@scripts/servers $(WANTED)

# The module offers no Rust API: its docs are for those who work on it, so links to private things are fine.
lint: ## Check format, lints, API docs, crates, patches and dependencies
	@scripts/setup
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --test ops -- -D warnings
	cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz -- -D warnings
	cargo clippy --locked -p leasehold-client --all-features -- -D warnings
	cargo clippy --locked -p leasehold-client --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --document-private-items \
		--features leasehold-client/blocking,leasehold-client/metrics,leasehold-client/testing
	@$(MAKE) publish-dry-run
	scripts/plants --check
	scripts/deny

# Does all that `cargo publish` does with the core, the Rust client and the command line, but for the upload. Uncommitted changes are
# packed too, because this runs before the commit. Each depends on those before it, of the same version, which the registry may
# not have yet.
publish-dry-run:
	cargo publish --dry-run --locked --allow-dirty --quiet -p leasehold-core
	cargo publish --dry-run --locked --allow-dirty --quiet -p leasehold-client --config 'patch.crates-io.leasehold-core.path="core"'
	cargo publish --dry-run --locked --allow-dirty --quiet -p leasehold-cli --config 'patch.crates-io.leasehold-client.path="clients/rust"'

# `lint` leaves this out: that compiler shares nothing with the one for daily use.
check-oldest: ## Compile all code with the oldest supported Rust, which rustup brings
	rustup toolchain install $(OLDEST) --profile minimal
	rustup run $(OLDEST) cargo check --workspace --all-targets --locked

build: ## Build the release module, and the command line, in target/release/
	@scripts/setup
	cargo build --release --locked
	cargo build --release --locked -p leasehold-cli

install: ## Install both, with docs, man pages and completions; `make uninstall` removes them (PREFIX=/usr/local MODULEDIR= DESTDIR=)
	@scripts/install

uninstall:
	@scripts/install remove

dist: ## Make the files of a release, tarballs and .debs, in target/dist/ (TARGETS=all, or some)
	@scripts/setup
	@scripts/dist $(TARGETS)

bench: ## Measure locks against what one would use instead: 40 minutes; QUICK=1: two (SERVER=, ONLY="held memory")
	@scripts/setup
	@scripts/bench $(if $(QUICK),--quick) $(ONLY)

evidence: ## Let Porcupine judge what the campaign's clients are told, each scenario on each server (HOURS= SERVER=)
	@SOAK_JUDGE=1 SOAK_SECONDS=$${SOAK_SECONDS:-4} scripts/soak $(or $(HOURS),0)
