# lockmeter: set up, build, test, install. Everything installs what it needs.

CARGO ?= cargo
PREFIX ?= /usr/local
RELEASE := target/release/lockmeter
LAB := target/release/lockmeter-lab
PRELOAD := target/release/liblockmeter_preload.so
LOCKS := target/release/liblmlocks
LOCKS_HEADER := target/release/include/lockmeter/locks.h
WORKLOADS := target/workloads

C_SOURCES := $(shell git ls-files '*.c' '*.h' '*.cpp')

FUZZ_SECONDS ?= 60
# Of the virtual machines; empty for all of them.
KERNELS ?=
# How often each test that depends on when threads run is run beside busy loops.
LOADED_RUNS ?= 50

.PHONY: help setup build workloads demo test fuzz test-locks test-libraries test-programs test-vm test-vm-holds test-vm-threads test-hold-estimates test-under-load test-all bench bench-all bench-vm-holds lint screenshots install uninstall clean

help:
	@echo "make setup     install what is missing on a Debian machine"
	@echo "make build     build the release binaries, $(RELEASE) and $(LAB)"
	@echo "make demo      meter the kernel for a few seconds under a contended load and print the report"
	@echo "make test      run every test that this machine can run"
	@echo "make fuzz      each fuzz target for $(FUZZ_SECONDS) seconds, guided by coverage"
	@echo "make test-locks  the model checkers, mutations, miri and ThreadSanitizer on the lock library"
	@echo "make test-libraries  the rules for locks of Qt, Boost and RocksDB, whose packages are large"
	@echo "make test-programs  real programs' own tests, bare and metered"
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

setup:
	@scripts/setup build

build: setup
	$(CARGO) build --release --locked --package lockmeter --package lockmeter-lab --package lockmeter-locks-c
	@# Apart: Cargo would give it the meter with the side that reads, and each program a seventh more code.
	$(CARGO) build --release --locked --package lockmeter-preload

workloads: setup
	@$(MAKE) --no-print-directory -C workloads OUT=$(CURDIR)/$(WORKLOADS)

demo: build workloads
	@scripts/demo $(RELEASE) $(WORKLOADS)

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

test-programs: build
	@scripts/setup programs
	@tests/programs/run

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
	shellcheck $(shell git ls-files 'scripts/*' ':!scripts/check-links') tests/vm/smoke tests/vm/guest-init tests/vm/workloads tests/vm/lockdown tests/vm/threads tests/vm/holds tests/vm/holds-in-guest tests/programs/run bench/soak bench/user-soak bench/agent-soak bench/hold-cost bench/hold-cost-in-guest .ci/run

install: build
	install -D -m 0755 $(RELEASE) $(DESTDIR)$(PREFIX)/bin/lockmeter
	install -D -m 0755 $(LAB) $(DESTDIR)$(PREFIX)/bin/lockmeter-lab
	install -D -m 0644 $(PRELOAD) $(DESTDIR)$(PREFIX)/lib/lockmeter/liblockmeter_preload.so
	install -D -m 0644 $(LOCKS).so $(DESTDIR)$(PREFIX)/lib/liblmlocks.so
	install -D -m 0644 $(LOCKS).a $(DESTDIR)$(PREFIX)/lib/liblmlocks.a
	install -D -m 0644 $(LOCKS_HEADER) $(DESTDIR)$(PREFIX)/include/lockmeter/locks.h

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/lockmeter $(DESTDIR)$(PREFIX)/bin/lockmeter-lab \
		$(DESTDIR)$(PREFIX)/lib/lockmeter/liblockmeter_preload.so \
		$(DESTDIR)$(PREFIX)/lib/liblmlocks.so $(DESTDIR)$(PREFIX)/lib/liblmlocks.a \
		$(DESTDIR)$(PREFIX)/include/lockmeter/locks.h

clean:
	$(CARGO) clean
