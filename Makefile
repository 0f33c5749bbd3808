# Everything a developer calls, by name. `make help` lists it.
#
# A target `name` takes ARGS="..." for the program that it runs.

CARGO ?= cargo
ARGS ?=
# Where things are installed; DESTDIR stands before it while a package is built.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
PROFILE ?= release
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release

.DEFAULT_GOAL := help
.PHONY: help build install deb package demo check test test-long crash suites fuzz bench fmt lint clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

# Each by itself: together they would share the features of what both depend on, and the library would reach files
# through libc.
build: ## build what `make install` installs: the C library and the command; ARGS=library|command for one
	$(if $(filter command,$(ARGS)),,$(CARGO) build --locked --profile $(PROFILE) --package wholly-capi)
	$(if $(filter library,$(ARGS)),,$(CARGO) build --locked --profile $(PROFILE) --package wholly-cli)

install: ## install what `make build` has built; takes no compiler; ARGS=library|command for one
	@PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" PROFILE="$(PROFILE)" scripts/install $(ARGS)

deb: build ## Debian packages of what `make build` has built, in target/debian (takes cargo-deb)
	CARGO="$(CARGO)" PROFILE="$(PROFILE)" scripts/deb

# They take each other from a registry of their own, which cargo makes for it. `cargo publish` takes the same list.
PUBLISHED = $(shell grep -L '^publish = false' crates/*/Cargo.toml)

package: ## pack the crates that programs depend on, as they are published, and compile each from its package
	$(CARGO) package --locked $(shell sed -n 's/^name = "\(wholly.*\)"/--package \1/p' $(PUBLISHED)) $(ARGS)

# In one build: in two, what both depend on would be compiled twice, for other features of it.
demo: ## kill commands and programs in the middle of their updates, and see that none is left half-done
	@echo 'Building the command and the demo, in release mode: a few minutes the first time.'
	@$(CARGO) build --release --package wholly-cli --package wholly-bench-peers --bin wholly --example demo
	@$(RELEASE)/examples/demo --wholly "$(RELEASE)/wholly" $(ARGS)

# Three minutes on 2 cores when everything is built: what to run while one works.
check: lint ## formatting, lints, unit tests, and a glance of the crash explorer at all workloads
	$(CARGO) test --workspace --exclude wholly-orders --exclude wholly-threads --exclude '*-shuttle' --exclude '*-loom' \
	  --lib --bins --test hunt $(ARGS)

# The test profile is optimised and keeps its assertions. With CI=true a missing capability (FUSE, a loop device, a
# package) fails; otherwise the test that needs it says why it was skipped.
test: ## all tests (a newcomer needs only Rust and gcc)
	$(CARGO) test --workspace $(ARGS)

test-long: ## all tests with their long bounds, 90 minutes on 2 cores; ARGS="--piece 3/8" for one of eight pieces
	CARGO="$(CARGO)" scripts/test-long $(ARGS)

# Far more states than `make test`, a line at a time. What x86 allows persistent memory, `pmem` allows too.
crash: ## explore crashes beyond what `make test` does, hours on 2 cores; ARGS="--piece 3/16" for one of sixteen pieces
	$(CARGO) test --package wholly-crash --test all semantic::
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --world disk --world disk-ext4 \
	  --world pmem $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject volume:fine_grained_wal $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject volume:hybrid_log $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject volume:undo $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject volume:shadow $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject volume:page_cache_wal $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject volume:op_log --world disk \
	  --world disk-torn --world flash --world flash-torn --world blocks --world blocks-dependent $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject volume:multi_queue --world disk \
	  --world disk-torn --world pmem --world ccnvme --world ccnvme-ordered --world ccnvme-lost \
	  --world ccnvme-window $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject blocks:contract $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject blocks:log --world disk \
	  --world disk-torn --world pmem $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject blocks:xftl $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject ccnvme $(ARGS)
	$(CARGO) run --release --package wholly-cli -- crash --effort thorough --subject blocks:multi_queue --world queues \
	  --world queues-torn --world ccnvme --world ccnvme-plp --world ccnvme-ordered --world ccnvme-lost \
	  --world ccnvme-window $(ARGS)

suites: ## run public suites for file systems on mounts and in views, and in an ordinary directory beside them
	$(CARGO) build --release --package wholly-cli
	WHOLLY="$(RELEASE)/wholly" scripts/suites $(ARGS)

fuzz: ## fuzz recovery, or TARGET=record (takes a nightly compiler and cargo-fuzz)
	cd crates/core && $(CARGO) +nightly fuzz run --sanitizer none $(or $(TARGET),recovery) -- \
	  -rss_limit_mb=2048 -timeout=10 $(ARGS)

bench: ## measure against bounds and peers, in turns; ARGS="--json" for the raw rows
	$(CARGO) run --release --package wholly-bench-peers -- groups $(ARGS)

fmt: ## format the sources
	$(CARGO) fmt --all

lint: ## what CI asks of the sources
	$(CARGO) fmt --all -- --check
	scripts/columns
	$(CARGO) clippy --workspace --all-targets -- -D warnings

clean: ## remove what was built
	$(CARGO) clean
