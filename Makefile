# The commands of contributors and of CI. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo check sdk-api locks fix unit process test test-full flaky fuzz audit sim sim-data sim-mutants wheel-portable wheel-mutants bench bench-recovery bench-recovery-torch bench-restart-torch bench-rdzv-torch bench-rendezvous bench-launch bench-collectives bench-commit bench-sharded bench-data bench-order bench-notice bench-plugins bench-ps bench-spark test-plugins test-ssh wheel python spark test-frameworks test-gpu test-horovod test-horovod-spark test-torch-rdzv test-spark test-spark-full plugins plugins-portable test-cloud test-notices test-s3 test-petastorm

# Tools, and in CI build outputs too, are kept outside of the clone.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/elasticrun
TOOLS := $(CACHE)/tools
export PATH := $(TOOLS)/bin:$(PATH)
ifeq ($(CI),true)
export CARGO_TARGET_DIR ?= $(CACHE)/target
export CARGO_INCREMENTAL ?= 0
# Snapshots are compared, never updated.
export INSTA_UPDATE ?= no
NEXTEST_PROFILE ?= ci
endif
NEXTEST_PROFILE ?= default

DENY_VERSION := 0.20.2
NEXTEST_VERSION := 0.9.143
SEEDS ?= 10000

# The SDKs of clouds compile for minutes. They have their own workspace, and a target directory outside of the clone.
CLOUD := discovery-plugins/cloud
CLOUD_TARGET := $(or $(ELASTICRUN_CLOUD_TARGET),$(CACHE)/target-cloud)
# cargo-deny on it. deny.toml also has rules for crates and licences of the main workspace only.
CLOUD_DENY := cargo-deny --locked --manifest-path $(CLOUD)/Cargo.toml --config deny.toml check -A unused-wrapper -A license-not-encountered

# Every build names the whole workspace: cargo unites the features of its packages, so nothing is compiled twice.
NEXTEST := cargo nextest run --locked --workspace --profile $(NEXTEST_PROFILE)
PLUGIN_TESTS := package(elasticrun-plugin-loader) | package(~elasticrun-plugin) | (package(elasticrun) & binary(plugins)) | (package(elasticrun-process-tests) & test(plugin))
PROCESS := package(elasticrun-process-tests) | package(elasticrun-ssh-tests) | package(elasticrun-etcd-tests) | (package(/^elasticrun-ps/) & kind(test))

# What NAME may be in `make test NAME=` and `make bench NAME=`. The targets are NAME or test-NAME, and bench-NAME.
TEST_NAMES := unit process ssh python spark spark-full plugins cloud frameworks gpu horovod horovod-spark torch-rdzv notices s3 petastorm
BENCH_NAMES := rendezvous launch collectives recovery recovery-torch restart-torch rdzv-torch commit sharded data order notice plugins ps spark
FUZZ_NAMES := config etcd footers frames host_lists journal_values manifests pages plugin_answers shards thrift tokens
# Only from the command line: some systems have an environment variable NAME.
CHOSEN := $(if $(filter command,$(origin NAME)),$(NAME))
CHOSEN_PLUGINS = $(if $(filter command,$(origin PLUGINS)),$(PLUGINS))
# $(call chosen,COMMAND,NAMES): CHOSEN, or the end of make with exit code 2 if it is not one of NAMES.
chosen = $(foreach name,$(filter-out $(2),$(CHOSEN)),$(error $(1) NAME=$(name): no such name; expected one of: $(2)))$(CHOSEN)

# The linter of Python, in its own virtual environment.
RUFF = "$$(dirname "$$(worker/python/venv.sh lint)")/ruff"

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Programs that tests need, each with the Debian package that contains it.
PROGRAMS := g++=g++ gcc=gcc /usr/sbin/sshd=openssh-server ssh=openssh-client ip=iproute2 /usr/sbin/slurmctld=slurm-wlm munged=munge etcd=etcd-server openssl=openssl python3=python3

setup: ## Installs what the tests need: by apt as root gcc, g++, sshd, ip, Slurm, etcd, openssl and Python's venv; cargo-nextest
	@missing=(); \
	for each in $(PROGRAMS); do PATH="$$PATH:/usr/sbin" command -v "$${each%=*}" >/dev/null || missing+=("$${each#*=}"); done; \
	$${PYTHON:-python3} -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	if [ "$${#missing[@]}" = 0 ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$${missing[@]}"; \
	else \
	  echo "setup: cannot install $${missing[*]}: needs root and apt-get; tests that need these are skipped or fail with a message"; \
	fi
	@cargo nextest --version >/dev/null 2>&1 || cargo install cargo-nextest --version $(NEXTEST_VERSION) --locked --root $(TOOLS)

demo: ## Trains digits on local hosts while one is added and a worker is killed
	cargo build --locked -p elasticrun -p elasticrun-digits
	examples/digits/demo.sh $${CARGO_TARGET_DIR:-target}/debug

locks: ## Checks that each Cargo.lock matches its workspace
	@for lock in $$(find . -name Cargo.lock -not -path '*/target/*' -not -path './.*' -not -path './tests/fuzz/*'); do \
	  cargo metadata --locked --format-version 1 --manifest-path "$$(dirname $$lock)/Cargo.toml" >/dev/null || \
	    { echo "locks: $$lock is behind its manifests; to update it, run cargo metadata --manifest-path $$(dirname $$lock)/Cargo.toml"; exit 1; }; \
	done

check: setup locks $(TOOLS)/bin/cargo-deny-$(DENY_VERSION) ## Checks formatting, lints, API documentation, lock files, licences and sources of dependencies
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --locked --workspace --no-deps -q
	cargo-deny --locked check --hide-inclusion-graph bans licenses sources
	$(CLOUD_DENY) --hide-inclusion-graph bans licenses sources
	discovery-plugins/sdk/api/api.py
	$(RUFF) format --check --quiet .
	$(RUFF) check --quiet .

sdk-api: ## Compares the interface of the plugin SDK with the recorded one; RECORD=1 records it
	discovery-plugins/sdk/api/api.py $(if $(RECORD),--record)

fix: setup ## Formats all code and fixes simple lints
	cargo fmt --all
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	$(RUFF) check --quiet --fix . || true
	$(RUFF) format --quiet .

unit: setup ## Unit tests, property tests, doc tests and 1,000 simulation seeds
	cargo build --locked --workspace
	cargo test --locked --workspace --doc -q
	$${CARGO_TARGET_DIR:-target}/debug/elasticrun-sim --seeds 1000
	$(NEXTEST) -E 'not ($(PROCESS))'

process: setup ## Real drivers, agents and workers, with signals, sshd and network namespaces; a cluster of etcd
	cargo build --locked --workspace
	$(NEXTEST) -E '$(PROCESS)'

test-ssh: setup ## Hosts in network namespaces with sshd; a part of `make process`
	cargo build --locked --workspace
	$(NEXTEST) -E 'package(elasticrun-ssh-tests)'

test-plugins: setup ## Discovery plugins: conformance, new projects in three languages, misbehaving ones; a part of unit and process
	cargo build --locked --workspace
	$(NEXTEST) -E '$(PLUGIN_TESTS)'

python: setup ## The wheel as a user gets it: types, unit tests, real jobs with torch
	worker/python/test.sh

spark: ## A minute of jobs on a Spark 4 cluster; needs Java 17, else skipped
	worker/python/test_spark.sh quick

test-frameworks: setup ## Real jobs with TensorFlow, Keras, JAX, Lightning, Transformers and Accelerate
	worker/python/test_frameworks.sh

test-gpu: ## CUDA: ranks that share a GPU, NCCL, commits of CUDA tensors; needs a GPU, torch and pytest, else skipped; WHEEL=FILE for a built one
	worker/python/test_gpu.sh $(if $(WHEEL),'$(WHEEL)')

test-notices: ## 1,000 termination notices of three clouds to a job of four hosts, with no lost step; NOTICES=100 for fewer
	cargo build --locked --workspace
	cargo test --locked -p elasticrun-process-tests --test end_to_end -- --ignored --nocapture a_thousand_notices

test-horovod: setup ## Horovod's own elastic examples and scenarios; needs a checkout: HOROVOD_SRC=DIR
	HOROVOD_SRC="$(HOROVOD_SRC)" worker/python/test_horovod.sh

test-torch-rdzv: setup ## PyTorch's own tests of rendezvous back ends, stores and agents; needs a checkout: PYTORCH_SRC=DIR
	PYTORCH_SRC="$(PYTORCH_SRC)" worker/python/test_torch_rdzv.sh

test-horovod-spark: ## Horovod's own elastic scenarios on Spark 3.5; needs HOROVOD_SRC=DIR and Java 17; SPARK=spark4 for Spark 4
	HOROVOD_SRC="$(HOROVOD_SRC)" worker/python/test_horovod_spark.sh $(or $(SPARK),spark35)

test-spark-full: test-spark

test-spark: ## Jobs on Spark clusters, 3.5 and 4; needs Java 17; SPARK=spark35 or spark4 for one
	worker/python/test_spark.sh $(or $(SPARK),all)

plugins: ## Builds dist/plugins/*.so for this machine: AWS, Google Cloud, Kubernetes, Slurm, Spark; takes 8 GB of memory
	ELASTICRUN_CLOUD_TARGET="$(CLOUD_TARGET)" discovery-plugins/build.sh native dist/plugins $(CHOSEN_PLUGINS)

plugins-portable: ## The same for glibc 2.28 or later, as the wheel of wheel-portable; PLUGINS="slurm spark" builds these only
	ELASTICRUN_CLOUD_TARGET="$(CLOUD_TARGET)" discovery-plugins/build.sh portable dist/plugins $(CHOSEN_PLUGINS)

test-cloud: setup ## Cloud plugins against simulated services, and jobs on them
	cargo build --locked --workspace
	cd $(CLOUD) && cargo fmt --check
	cd $(CLOUD) && cargo clippy --locked -j2 --target-dir $(CLOUD_TARGET) --all-targets -- -D warnings
	cd $(CLOUD) && cargo build --locked -j2 --target-dir $(CLOUD_TARGET)
	programs=$$(realpath $${CARGO_TARGET_DIR:-target}/debug) && cd $(CLOUD) && \
	  ELASTICRUN_TEST_BINARY=$$programs/elasticrun ELASTICRUN_TEST_WORKER=$$programs/elasticrun-test-worker \
	  cargo nextest run --locked -j2 --target-dir $(CLOUD_TARGET)

test-s3: ## The Parquet reader and durable commits against simulated S3 and Google Cloud Storage, and the reader against Azurite
	worker/data/tests/s3.sh
	worker/data/tests/azure.sh

test-petastorm: ## The readers compared with Petastorm 0.13.1: seeds, shards, and data sets that it writes with Spark; needs Java
	worker/python/test_petastorm.sh

wheel: ## Builds dist/elasticrun-*.whl for pip
	worker/python/build.sh release dist

wheel-portable: ## Builds wheels for glibc 2.28 or later, with zig; ARCH=aarch64 for one processor
	worker/python/build_portable.sh dist $(ARCH)

ifneq ($(CHOSEN),)
test:
	@$(MAKE) --no-print-directory $(foreach name,$(call chosen,make test,$(TEST_NAMES)),$(or $(filter unit process python spark,$(name)),test-$(name)))
else
test: check unit process python spark test-cloud ## Runs what CI runs; one suite: NAME=unit, process, ssh, python, spark, cloud, ...
endif

test-full: test chaos-smoke test-frameworks test-spark test-notices test-s3 test-petastorm test-horovod test-torch-rdzv ## All suites but Horovod's on Spark; takes hours; HOROVOD_SRC=DIR and PYTORCH_SRC=DIR, else their suites are skipped
	# 20 kills in a job of each of Lightning, Transformers and Accelerate.
	worker/python/test_frameworks.sh frameworks_torch -m kills
	worker/python/test_frameworks.sh composer
	# Tests that take more than 2 GB of memory.
	worker/python/test.sh -m full

# MINUTES only from the command line. All runs are equally long: 10 minutes are 8 runs of 75 s.
chaos: setup ## Kills the driver, with and without etcd, and cuts the network for 8 s while a job trains, beside undisturbed runs; MINUTES=60 for longer
	cargo build --locked --workspace
	$${CARGO_TARGET_DIR:-target}/debug/elasticrun-chaos --minutes $(or $(if $(filter command,$(origin MINUTES)),$(MINUTES)),10)

chaos-smoke: setup
	cargo build --locked --workspace
	$${CARGO_TARGET_DIR:-target}/debug/elasticrun-chaos --smoke

# Tests on an idle machine show few of the races that users meet.
flaky: setup ## Repeats tests with processes 50 times on a busy machine; continues after a stop. RUNS, PYTHON_RUNS, BURNERS, MINUTES, SUITES, FILTER
	tests/flaky/flaky.py --runs $(or $(RUNS),50) --python-runs $(or $(PYTHON_RUNS),10) --burners $(or $(BURNERS),8) \
	  --minutes $(or $(MINUTES),0) --suites '$(SUITES)' --filter '$(FILTER)'

# Only from the command line: some shells have a variable SECONDS.
fuzz: ## Feeds random input to the parsers for a minute each; NAME=host_lists for one, SECONDS=600 for longer; needs a C++ compiler
	tests/fuzz/fuzz.py --seconds $(or $(if $(filter command,$(origin SECONDS)),$(SECONDS)),60) \
	  $(call chosen,make fuzz,$(FUZZ_NAMES))

audit: $(TOOLS)/bin/cargo-deny-$(DENY_VERSION) ## Looks for known vulnerabilities of dependencies; fetches the advisory database
	cargo-deny --locked check advisories
	$(CLOUD_DENY) advisories

sim: ## Simulates 10,000 schedules of driver, agents and workers; SEEDS=100000 for more
	cargo run --locked --release -q -p elasticrun-sim -- --seeds $(SEEDS)

sim-data: ## Simulates 10,000 jobs on data; each row must be committed exactly once per epoch
	$(MAKE) --no-print-directory sim SEEDS=10000

sim-mutants: ## Plants known bugs into the core, one by one; the simulation must find each
	cargo nextest run --locked --release -p elasticrun-sim --features mutants -E 'binary(mutants) or binary(shrink) or binary(rendezvous)'
	cargo run --locked --release -q -p elasticrun-sim --features mutants -- --mutants --seeds 1000000

wheel-mutants: setup ## Plants known bugs into the worker of the wheel, one by one; a test with real jobs must fail for each
	worker/python/test_mutants.py

ifneq ($(CHOSEN),)
bench:
	@$(MAKE) --no-print-directory $(addprefix bench-,$(call chosen,make bench,$(BENCH_NAMES)))
else
bench: bench-rendezvous bench-collectives bench-recovery bench-commit ## Runs four benchmarks; one benchmark: NAME=data, notice, spark, ...
endif

bench-recovery: ## Time from the kill of a worker to the survivors' next committed step
	benches/recovery.sh

bench-recovery-torch: ## The same with torch, compared with torchrun; a quarter of an hour
	benches/python.sh recovery_torch.py

bench-restart-torch: ## The restart of a script without the SDK, with standby interpreters and without, compared with torchrun
	benches/python.sh restart_torch.py

bench-rdzv-torch: ## Rendezvous of up to 1,000 nodes by the back end elasticrun, compared with torch's c10d; NODES="4 16" for these
	cargo build --locked --release -q -p elasticrun-rendezvous --example bench_nodes
	benches/python.sh rdzv_torch.py --binary $${CARGO_TARGET_DIR:-target}/release/examples/bench_nodes $(if $(NODES),--nodes $(NODES))

bench-commit: ## Commits of a torch state compared with memcpy; steps compared with DDP on gloo
	benches/python.sh commit_torch.py

bench-sharded: ## Commits of a divided state, and its recovery beside torchrun's; a quarter of an hour; BYTES=2e8 WORKERS=4 for less; TORCHFT=directory
	benches/python.sh sharded_torch.py $(if $(BYTES),--bytes $(BYTES)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(TORCHFT),--torchft '$(TORCHFT)')
	cargo test --locked --release -q -p elasticrun-reshard --test speed -- --ignored --nocapture

bench-data: ## Reading of data sets compared with other loaders; PART=loaders or reader for one; ROWS=100000 for fewer rows; BASELINE=wheel of another build
	benches/data.sh $(if $(PART),--part $(PART)) --rows $(or $(ROWS),800000) $(if $(BASELINE),--baseline '$(BASELINE)')

bench-order: ## The first batch of a billion rows; an epoch in order "deterministic" under several memory budgets
	cargo build --locked --release -q -p elasticrun-benches --bin bench_order
	$${CARGO_TARGET_DIR:-target}/release/bench_order first
	$${CARGO_TARGET_DIR:-target}/release/bench_order epoch

bench-notice: ## Time from a change of the list of hosts until all workers have left their round
	cargo build --locked --release -q -p elasticrun -p elasticrun-benches
	$${CARGO_TARGET_DIR:-target}/release/bench_notice

bench-spark: ## Cost of a lost Spark executor, and of the end of a job with pending slots; KILLS=5 for fewer kills
	VENV=$(or $(SPARK),spark35) benches/python.sh spark.py --kills $(or $(KILLS),20)

bench-ps: ## Push, pull and push-pull of the parameter server, beside plain TCP with the same framing; PS_LITE_DIR=directory has ps-lite, built, beside it too
	cargo run --locked --release -q -p elasticrun-benches --bin bench_ps

bench-plugins: ## Cost of a plugin process: its start, a poll
	cargo bench --locked -q -p elasticrun-plugin-loader --bench isolation

bench-rendezvous: ## Rounds of up to 100,000 workers, and the loss of 1,500 of 3,000 hosts
	cargo build --locked --release -q -p elasticrun -p elasticrun-benches
	$${CARGO_TARGET_DIR:-target}/release/bench_rendezvous
	$${CARGO_TARGET_DIR:-target}/release/bench_rendezvous --workers 3000 --workers-per-agent 1 --lose 1500

bench-launch: ## The start of 300 hosts by a script in place of ssh
	cargo build --locked --release -q -p elasticrun -p elasticrun-benches
	$${CARGO_TARGET_DIR:-target}/release/bench_launch

bench-collectives: ## Allreduce, broadcast and allgather compared with gloo
	cargo run --locked --release -q -p elasticrun-benches --bin bench_collectives

# The build takes minutes, once per version and machine.
$(TOOLS)/bin/cargo-deny-$(DENY_VERSION):
	cargo install cargo-deny --version $(DENY_VERSION) --locked --root $(TOOLS)
	touch $@
