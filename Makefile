# lockmeter: set up, build, test, install. Everything installs what it needs.

CARGO ?= cargo
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
# Where the built files lie that `make install` copies.
BUILT ?= target/release
RELEASE := $(BUILT)/lockmeter
LAB := $(BUILT)/lockmeter-lab
PRELOAD := $(BUILT)/liblockmeter_preload.so
LOCKS := $(BUILT)/liblmlocks
LOCKS_HEADER := $(BUILT)/include/lockmeter/locks.h
VERSION := $(shell scripts/source-version version)
WORKLOADS := target/workloads

C_SOURCES := $(shell git ls-files '*.c' '*.h' '*.cpp')

FUZZ_SECONDS ?= 60
# Of the virtual machines; empty for all of them.
KERNELS ?=
# How often each test that depends on when threads run is run beside busy loops.
LOADED_RUNS ?= 50

.PHONY: help setup build fleet packages test-fleet test-packages install-built install-lockmeter install-lab install-locks workloads demo demo-fleet test fuzz test-locks test-libraries test-programs test-vm test-vm-holds test-vm-threads test-agent test-hold-estimates test-under-load test-all bench bench-all bench-vm-holds lint screenshots install uninstall clean

help:
	@echo "make setup     install what is missing on a Debian machine"
	@echo "make build     build the release binaries, $(RELEASE) and $(LAB)"
	@echo "make demo      meter the kernel for a few seconds under a contended load and print the report"
	@echo "make test      run every test that this machine can run"
	@echo "make fuzz      each fuzz target for $(FUZZ_SECONDS) seconds, guided by coverage"
	@echo "make test-locks  the model checkers, mutations, miri and ThreadSanitizer on the lock library"
	@echo "make test-libraries  the rules for locks of Qt, Boost and RocksDB, whose packages are large"
	@echo "make fleet     build lockmeter-fleet, for questions about many machines, into target/fleet/release"
	@echo "make demo-fleet  record three loads as three hosts, and print which lock costs them most and where to look"
	@echo "make test-fleet  its Parquet against the reports of the same recordings, and its SQL on DataFusion, DuckDB and ClickHouse, from a folder and from S3"
	@echo "make test-agent  the agent killed at fifty moments, and an hour of it beside loads: its counts, memory and CPU time"
	@echo "make test-programs  real programs' own tests, bare and metered; and the small programs of the tests, metered without fast paths"
	@echo "make test-vm   the same workloads on Debian's 6.1, 6.12 and 7.2 kernels, in virtual machines; KERNELS=6.1 on one of them"
	@echo "make test-vm-holds  holds by function hooks: their truth, and a stress, on the same kernels"
	@echo "make test-vm-threads  100,000 threads alive at once, in a virtual machine: every hold counted, at a cost that does not grow"
	@echo "make test-hold-estimates  100 programs that measure their holds themselves: how often the truth lies within the printed interval"
	@echo "make test-under-load  each test that depends on when threads run, $(LOADED_RUNS) times beside busy loops"
	@echo "make test-all  all of these but fuzz, and the lints; hours. $$(scripts/test-all --last)"
	@echo "make bench     the experiments in short, with a report, in five minutes; goes on where it was interrupted"
	@echo "make bench-all the same in full, and what metering costs in detail: an hour and a half"
	@echo "make bench-vm-holds  what holds of kernel locks cost the machine, in a guest that counts instructions; half an hour or more"
	@echo "make lint      formatting and lints, as errors"
	@echo "make screenshots  the README's two pictures, from real runs"
	@echo "make install   install to $(PREFIX)/bin"
	@echo "make packages  Debian packages, and an archive of the recorder that needs no library, into target/packages"
	@echo "make test-packages  install these in clean Debian 12 and 13 trees, and use them there; also what the README says to type"

setup:
	@scripts/setup build

build: setup
	@# What --version tells. Cargo builds the two programs again if it is another commit, and nothing else.
	LOCKMETER_COMMIT="$$(scripts/source-version commit)" \
		$(CARGO) build --release --locked --package lockmeter --package lockmeter-lab --package lockmeter-locks-c
	@# Apart: Cargo would give it the meter with the side that reads, and each program a seventh more code.
	$(CARGO) build --release --locked --package lockmeter-preload

# DataFusion takes many minutes to build, and the recorder does without.
fleet: setup
	cd fleet && $(CARGO) build --release --locked

workloads: setup
	@$(MAKE) --no-print-directory -C workloads OUT=$(CURDIR)/$(WORKLOADS)

demo: build workloads
	@scripts/demo $(RELEASE) $(WORKLOADS)

demo-fleet: build fleet workloads
	@scripts/demo-fleet $(RELEASE) target/fleet/release/lockmeter-fleet $(WORKLOADS)

test: workloads
	@scripts/setup test
	$(CARGO) test --package lockmeter-locks --features lockdep --locked --test lockdep
	@scripts/test-locks fast
	$(CARGO) test-members --doc --quiet
	$(CARGO) test-members --lib --bins --tests --no-fail-fast
	@scripts/check-packages --run

fuzz:
	@scripts/setup build
	@set -e; for target in $$(scripts/fuzz --list); do scripts/fuzz $$target $(FUZZ_SECONDS); done

test-locks:
	@scripts/setup locks
	@scripts/test-locks all

test-libraries:
	@scripts/setup libraries
	$(CARGO) test-members --package lockmeter --test library_rules -- --ignored

test-agent: build workloads
	$(CARGO) test-members --package lockmeter --test agent_faults -- --ignored
	@bench/agent-soak

test-fleet: build workloads
	@scripts/setup fleet
	cd fleet && $(CARGO) clippy --all-targets --locked -- -D warnings
	scripts/licences fleet
	cd fleet && LOCKMETER=$(CURDIR)/$(RELEASE) $(CARGO) test --locked --no-fail-fast
	LOCKMETER=$(CURDIR)/$(RELEASE) fleet/tests/engines

test-programs: build workloads
	@scripts/setup programs
	@tests/programs/run
	$(CARGO) test-members --package lockmeter --test undisturbed -- --ignored

# Not `build`: the guests run what the tests run, and that is no release.
test-vm: setup
	@scripts/setup vm
	@tests/vm/workloads $(KERNELS)
	@tests/vm/lockdown $(KERNELS)

test-vm-holds: build
	@scripts/setup vm
	@tests/vm/holds

# Of what `build` builds: a recorder without optimisations cannot follow 100,000 threads in an emulated guest.
test-vm-threads: build
	@scripts/setup vm
	@tests/vm/threads

test-under-load: workloads
	@scripts/setup test
	@scripts/test-under-load $(LOADED_RUNS)

test-hold-estimates:
	@scripts/setup test
	LOCKMETER_SEEDS=100 $(CARGO) test-members --package lockmeter --test user_locks rare_long_holds -- --nocapture

test-all:
	@scripts/test-all

bench: build
	@scripts/setup bench
	$(LAB) bench all --short --report target/bench

bench-all: build
	@scripts/setup bench
	$(LAB) bench all --report target/bench-all
	$(CARGO) run --release --locked -p kernel-overhead
	$(CARGO) run --release --locked -p latency-overhead
	$(CARGO) run --release --locked -p attach-overhead
	$(CARGO) build --release --locked -p lockmeter-preload
	$(CARGO) run --release --locked -p user-overhead
	$(CARGO) run --release --locked -p process-starts
	$(CARGO) run --release --locked -p user-programs
	$(CARGO) run --release --locked -p real-programs
	$(CARGO) run --release --locked -p bench-locks -- --quick

bench-vm-holds: build
	@scripts/setup vm
	@bench/hold-cost

screenshots: build
	@scripts/setup screenshots
	@scripts/screenshots $(RELEASE)

lint:
	@scripts/setup test
	$(CARGO) fmt --all --check
	cd fleet && $(CARGO) fmt --check
	clang-format --dry-run --Werror $(C_SOURCES)
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package lockmeter-meter --no-default-features --locked -- -D warnings
	$(CARGO) clippy --package lockmeter-preload --all-targets --locked -- -D warnings
	$(CARGO) clippy --package lockmeter-locks --no-default-features --locked -- -D warnings
	$(CARGO) clippy --package lockmeter-locks --features lockdep --all-targets --locked -- -D warnings
	$(CARGO) clippy --package lockmeter-locks --features meter --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	scripts/check-links
	scripts/check-layers
	scripts/check-packages
	scripts/licences
	shellcheck $(shell git ls-files 'scripts/*' ':!scripts/check-links' ':!scripts/licences') tests/packages/run tests/packages/recipes tests/vm/smoke tests/vm/guest-init tests/vm/workloads tests/vm/lockdown tests/vm/threads tests/vm/holds tests/vm/holds-in-guest tests/programs/run bench/soak bench/user-soak bench/agent-soak bench/top-cost bench/hold-cost bench/hold-cost-in-guest .ci/run

install: build install-built

# What is built already. `make packages` and distributions call these with a DESTDIR.
install-built: install-lockmeter install-lab install-locks

install-lockmeter:
	install -D -m 0755 $(RELEASE) $(DESTDIR)$(PREFIX)/bin/lockmeter
	install -D -m 0644 $(PRELOAD) $(DESTDIR)$(PREFIX)/lib/lockmeter/liblockmeter_preload.so
	@# The unit names the installed program.
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' dist/lockmeter-agent.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/lockmeter-agent.service
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/lockmeter/prometheus dist/prometheus/lockmeter.rules.yml
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/lockmeter/grafana dist/grafana/lockmeter.json
	@scripts/install-documents $(RELEASE) $(DESTDIR)$(PREFIX)/share

install-lab:
	install -D -m 0755 $(LAB) $(DESTDIR)$(PREFIX)/bin/lockmeter-lab
	@scripts/install-documents $(LAB) $(DESTDIR)$(PREFIX)/share

install-locks:
	install -D -m 0644 $(LOCKS).so $(DESTDIR)$(LIBDIR)/liblmlocks.so.$(VERSION)
	ln -sf liblmlocks.so.$(VERSION) $(DESTDIR)$(LIBDIR)/liblmlocks.so.0
	ln -sf liblmlocks.so.0 $(DESTDIR)$(LIBDIR)/liblmlocks.so
	install -D -m 0644 $(LOCKS).a $(DESTDIR)$(LIBDIR)/liblmlocks.a
	install -D -m 0644 $(LOCKS_HEADER) $(DESTDIR)$(PREFIX)/include/lockmeter/locks.h
	@# How others find them.
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(LIBDIR)/cmake/lmlocks
	for file in pkgconfig/lmlocks.pc cmake/lmlocks/lmlocks-config.cmake cmake/lmlocks/lmlocks-config-version.cmake; do \
		sed 's|@PREFIX@|$(PREFIX)|g; s|@LIBDIR@|$(LIBDIR)|g; s|@VERSION@|$(VERSION)|g' crates/locks-c/$${file##*/}.in \
			>$(DESTDIR)$(LIBDIR)/$$file || exit 1; \
	done

uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/, bin/lockmeter bin/lockmeter-lab lib/systemd/system/lockmeter-agent.service \
		share/man/man1/lockmeter.1 share/man/man1/lockmeter-*.1 include/lockmeter/locks.h)
	rm -f $(foreach name, lockmeter lockmeter-lab, $(addprefix $(DESTDIR)$(PREFIX)/share/, \
		bash-completion/completions/$(name) zsh/site-functions/_$(name) fish/vendor_completions.d/$(name).fish))
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/liblmlocks, .so .so.0 .so.$(VERSION) .a) $(DESTDIR)$(LIBDIR)/pkgconfig/lmlocks.pc
	rm -rf $(DESTDIR)$(PREFIX)/lib/lockmeter $(DESTDIR)$(PREFIX)/share/lockmeter $(DESTDIR)$(LIBDIR)/cmake/lmlocks

packages:
	@scripts/setup packages
	@scripts/packages

test-packages: packages workloads
	@scripts/setup packages
	@tests/packages/recipes
	@tests/packages/run

clean:
	$(CARGO) clean
