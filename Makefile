# What a person and CI call. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo check locks fix unit process test test-full flaky audit sim sim-data sim-mutants wheel-mutants bench bench-recovery bench-recovery-torch bench-rendezvous bench-collectives bench-commit bench-data bench-order bench-notice bench-plugins bench-spark test-plugins wheel python spark test-frameworks test-horovod test-horovod-spark test-spark plugins test-cloud test-notices test-s3 test-petastorm

# Tools and, in CI, build outputs outlive a clone.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/elasticrun
TOOLS := $(CACHE)/tools
export PATH := $(TOOLS)/bin:$(PATH)
ifeq ($(CI),true)
export CARGO_TARGET_DIR ?= $(CACHE)/target
export CARGO_INCREMENTAL ?= 0
# Snapshots are compared, never renewed.
export INSTA_UPDATE ?= no
NEXTEST_PROFILE ?= ci
endif
NEXTEST_PROFILE ?= default

DENY_VERSION := 0.20.2
NEXTEST_VERSION := 0.9.143
SEEDS ?= 10000

# SDKs of clouds compile for minutes: in a workspace and a target directory of their own, which outlive a clone.
CLOUD := discovery-plugins/cloud
CLOUD_TARGET := $(or $(ELASTICRUN_CLOUD_TARGET),$(CACHE)/target-cloud)

# All packages in every build: cargo unites their features, so that nothing is compiled twice.
NEXTEST := cargo nextest run --locked --workspace --profile $(NEXTEST_PROFILE)
PLUGINS := package(elasticrun-plugin-loader) | package(~elasticrun-plugin) | (package(elasticrun) & binary(plugins)) | (package(elasticrun-process-tests) & test(plugin))
PROCESS := package(elasticrun-process-tests) | package(elasticrun-ssh-tests)

# The linter of Python, in a virtual environment of its own.
RUFF = "$$(dirname "$$(worker/python/venv.sh lint)")/ruff"

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A program that tests need, and the package of Debian that has it.
PROGRAMS := /usr/sbin/sshd=openssh-server ssh=openssh-client ip=iproute2 /usr/sbin/slurmctld=slurm-wlm munged=munge openssl=openssl python3=python3

setup: ## Installs what the tests need: sshd, ip, Slurm, Python's venv (as root, by apt), cargo-nextest
	@missing=(); \
	for each in $(PROGRAMS); do PATH="$$PATH:/usr/sbin" command -v "$${each%=*}" >/dev/null || missing+=("$${each#*=}"); done; \
	$${PYTHON:-python3} -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	if [ "$${#missing[@]}" = 0 ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$${missing[@]}"; \
	else \
	  echo "setup: missing and not to be installed without root and apt-get: $${missing[*]}; tests that need them will say so"; \
	fi
	@cargo nextest --version >/dev/null 2>&1 || cargo install cargo-nextest --version $(NEXTEST_VERSION) --locked --root $(TOOLS)

demo: ## Trains digits on hosts that come, go and fail while it runs
	cargo build --locked -p elasticrun -p elasticrun-digits
	examples/digits/demo.sh $${CARGO_TARGET_DIR:-target}/debug

locks: ## Each Cargo.lock is what its workspace asks for
	@for lock in $$(find . -name Cargo.lock -not -path '*/target/*' -not -path './.*'); do \
	  cargo metadata --locked --format-version 1 --manifest-path "$$(dirname $$lock)/Cargo.toml" >/dev/null || \
	    { echo "locks: $$lock is behind its manifests; cargo metadata --manifest-path $$(dirname $$lock)/Cargo.toml mends it"; exit 1; }; \
	done

check: setup locks $(TOOLS)/bin/cargo-deny-$(DENY_VERSION) ## Formatting, lints, documentation, locks, licences and sources of dependencies
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --locked --workspace --no-deps -q
	cargo-deny --locked check --hide-inclusion-graph bans licenses sources
	$(RUFF) format --check --quiet .
	$(RUFF) check --quiet .

fix: setup ## Mends what can be mended by machine: formatting, simple lints
	cargo fmt --all
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	$(RUFF) check --quiet --fix . || true
	$(RUFF) format --quiet .

unit: setup ## Unit tests, laws, doc tests and 1,000 simulation seeds
	cargo build --locked --workspace
	cargo test --locked --workspace --doc -q
	$${CARGO_TARGET_DIR:-target}/debug/elasticrun-sim --seeds 1000
	$(NEXTEST) -E 'not ($(PROCESS))'

process: setup ## Real drivers, agents and workers, with signals, sshd and network namespaces
	cargo build --locked --workspace
	$(NEXTEST) -E '$(PROCESS)'

test-plugins: setup ## Discovery plugins: the conformance suite, new ones in three languages, and those that misbehave
	cargo build --locked --workspace
	$(NEXTEST) -E '$(PLUGINS)'

python: setup ## The Python package, all of it: types, real jobs, with torch too
	worker/python/test.sh

spark: ## A minute of jobs on a real cluster of Spark, on its newer line; needs Java 17
	worker/python/test_spark.sh quick

test-frameworks: setup ## TensorFlow, Keras and JAX in real jobs
	worker/python/test_frameworks.sh

test-notices: ## 1,000 notices of three clouds to a job of four hosts: no step lost; NOTICES=100 for fewer
	cargo build --locked --workspace
	cargo test --locked -p elasticrun-process-tests --test end_to_end -- --ignored --nocapture a_thousand_notices

test-horovod: setup ## Horovod's own elastic examples and scenarios: make test-horovod HOROVOD_SRC=DIR
	HOROVOD_SRC="$(HOROVOD_SRC)" worker/python/test_horovod.sh

test-horovod-spark: ## Horovod's own elastic scenarios on Spark: make test-horovod-spark HOROVOD_SRC=DIR, SPARK=spark4 for the newer line
	HOROVOD_SRC="$(HOROVOD_SRC)" worker/python/test_horovod_spark.sh $(or $(SPARK),spark35)

test-spark: ## Jobs on a real cluster of Spark, on both of its lines: make test-spark SPARK=spark35 for one
	worker/python/test_spark.sh $(or $(SPARK),all)

plugins: ## dist/plugins/*.so: the plugins for AWS, Google Cloud, Kubernetes, Slurm and Spark
	cargo build --locked -p elasticrun-plugin-slurm
	cargo build --locked -j2 --manifest-path $(CLOUD)/Cargo.toml --target-dir $(CLOUD_TARGET)
	mkdir -p dist/plugins
	cp $${CARGO_TARGET_DIR:-target}/debug/libelasticrun_plugin_slurm.so $(CLOUD_TARGET)/debug/libelasticrun_plugin_*.so dist/plugins

test-cloud: setup ## Cloud plugins against stand-ins of their clouds, and jobs on them
	cargo build --locked --workspace
	cd $(CLOUD) && cargo fmt --check
	cd $(CLOUD) && cargo clippy --locked -j2 --target-dir $(CLOUD_TARGET) --all-targets -- -D warnings
	cd $(CLOUD) && cargo build --locked -j2 --target-dir $(CLOUD_TARGET)
	programs=$$(realpath $${CARGO_TARGET_DIR:-target}/debug) && cd $(CLOUD) && \
	  ELASTICRUN_TEST_BINARY=$$programs/elasticrun ELASTICRUN_TEST_WORKER=$$programs/elasticrun-test-worker \
	  cargo nextest run --locked -j2 --target-dir $(CLOUD_TARGET)

test-s3: ## The reader of data sets over a stand-in of S3, which plays Google Cloud Storage, too
	worker/data/tests/s3.sh

test-petastorm: ## Our readers beside petastorm 0.13.1: what a seed and a shard mean, and what it writes with Spark
	worker/python/test_petastorm.sh

wheel: ## dist/elasticrun-*.whl, for pip install
	worker/python/build.sh release dist

test: check unit process python spark test-cloud ## What CI runs

test-full: test test-frameworks test-spark test-notices test-s3 test-petastorm test-horovod ## All tests there are; hours. Horovod's want HOROVOD_SRC
	# Those that take more than 2 GB of memory.
	worker/python/test.sh -m full

# A run of the tests at a time when the machine is free shows few of the races that users meet.
flaky: setup ## Tests with processes 50 times beside 8 burning ones: RUNS, PYTHON_RUNS, BURNERS, MINUTES, SUITES=regex, FILTER=regex; goes on where it stopped
	tests/flaky/flaky.py --runs $(or $(RUNS),50) --python-runs $(or $(PYTHON_RUNS),10) --burners $(or $(BURNERS),8) \
	  --minutes $(or $(MINUTES),0) --suites '$(SUITES)' --filter '$(FILTER)'

audit: $(TOOLS)/bin/cargo-deny-$(DENY_VERSION) ## Known vulnerabilities of dependencies; fetches the advisory database
	cargo-deny --locked check advisories

sim: ## Simulates SEEDS schedules of driver, agents and workers: make sim SEEDS=100000
	cargo run --locked --release -q -p elasticrun-sim -- --seeds $(SEEDS)

sim-data: ## 10,000 simulated jobs on data, tens of thousands of epochs: each row committed exactly once
	$(MAKE) --no-print-directory sim SEEDS=10000

sim-mutants: ## Plants known mistakes into the core, one by one: the simulation must see each
	cargo nextest run --locked --release -p elasticrun-sim --features mutants -E 'binary(mutants)'
	cargo run --locked --release -q -p elasticrun-sim --features mutants -- --mutants --seeds 1000000

wheel-mutants: setup ## Plants known mistakes of the worker into the wheel, one by one: a test with real jobs must fail
	worker/python/test_mutants.py

bench: bench-rendezvous bench-collectives bench-recovery bench-commit ## All benchmarks

bench-recovery: ## From the kill of a worker to the survivors' next committed step
	benches/recovery.sh

bench-recovery-torch: ## From the kill of a torch worker to the next committed step, beside torchrun; a quarter of an hour
	benches/python.sh recovery_torch.py

bench-commit: ## Commits of a torch state beside memcpy; steps beside DDP over gloo
	benches/python.sh commit_torch.py

bench-data: ## Reading of data sets beside pyarrow and petastorm; ROWS=100000 for fewer
	benches/data.sh --rows $(or $(ROWS),800000)

bench-order: ## The first batch of a billion rows; an epoch in order "deterministic" under budgets of memory
	cargo build --locked --release -q -p elasticrun-benches --bin bench_order
	$${CARGO_TARGET_DIR:-target}/release/bench_order first
	$${CARGO_TARGET_DIR:-target}/release/bench_order epoch

bench-notice: ## From a change of the list of hosts until all workers have left their round
	cargo build --locked --release -q -p elasticrun -p elasticrun-benches
	$${CARGO_TARGET_DIR:-target}/release/bench_notice

bench-spark: ## What a lost executor of Spark costs, and the end of a job with pending slots; KILLS=5 for fewer
	VENV=$(or $(SPARK),spark35) benches/python.sh spark.py --kills $(or $(KILLS),20)

bench-plugins: ## What the process of a plugin costs: its start, a poll
	cargo bench --locked -q -p elasticrun-plugin-loader --bench isolation

bench-rendezvous: ## Rounds of up to 100,000 workers
	cargo build --locked --release -q -p elasticrun -p elasticrun-benches
	$${CARGO_TARGET_DIR:-target}/release/bench_rendezvous

bench-collectives: ## Allreduce, broadcast and allgather beside gloo
	cargo run --locked --release -q -p elasticrun-benches --bin bench_collectives

# Its build takes minutes, once for each version and machine.
$(TOOLS)/bin/cargo-deny-$(DENY_VERSION):
	cargo install cargo-deny --version $(DENY_VERSION) --locked --root $(TOOLS)
	touch $@
