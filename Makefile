# `make demo` and `make test` set up all they need; the other targets are one line each.
.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := crds operator proto trainer tests
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
PACKAGES := -p spes_api -p spes_proto -p spes_operator -p spes_sync -p spes_trainer

.PHONY: help demo test bench science flows lint type proto crds docs chart controlplane helm images e2e e2e-all pins clean

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml requirements/all.txt requirements/uv.txt
	python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --requirement requirements/all.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

demo: $(READY) ## Train a mixture of experts over members that come and go, on this machine
	$(BIN)/spes run examples/moe-tiny.yaml --members examples/members.yaml --event 'uni-c preempted @ round 8' --event 'uni-d joins @ round 12' --compare-alone --output runs/demo

test: $(READY) ## Run every test
	$(BIN)/pytest

bench: $(READY) ## Figures, each beside what it is compared with
	nice $(BIN)/python tests/bench

science: $(READY) ## SPES beside its rivals on the same tokens (QUICK=1: a short form)
	nice $(BIN)/python tests/bench/science $(if $(QUICK),--quick)

flows: $(READY) controlplane ## Members come, train, vanish and return over real API servers
	$(BIN)/python hack/flows

lint: $(READY) ## Style, formatting and the import contracts
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports

type: $(READY) ## mypy --strict on the packages and what plays clusters
	$(BIN)/mypy $(PACKAGES)
	MYPYPATH=hack:tests $(BIN)/mypy -p kubelet -p flows

proto: $(READY) ## Regenerate the stubs
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto --python_out=proto --pyi_out=proto --grpc_python_out=proto --mypy_grpc_out=quiet:proto proto/spes_proto/v1/*.proto

crds: $(READY) ## Regenerate the CRDs from spes_api
	$(BIN)/python -m spes_api.generate crds

docs: $(READY) ## Regenerate the references of commands and fields
	$(BIN)/python hack/docs/generate.py

chart: $(READY) ## Regenerate the chart's schema and tables
	$(BIN)/python hack/helm/generate.py

controlplane: ## Build the Kubernetes control plane that tests run, once (needs Go)
	python3 hack/controlplane/build.py

helm: ## Build the helm that tests render the chart with, once (needs Go)
	python3 hack/helm/build.py

images: $(READY) ## Build the images (needs Docker)
	hack/kind/images.sh operator trainer

e2e: $(READY) ## Install, train, preempt, cut, return and delete on kind clusters (needs Docker)
	hack/kind/e2e.sh -m 'e2e and not rest'

e2e-all: $(READY) ## Every scenario on kind clusters
	hack/kind/e2e.sh

pins: $(READY) ## Recompile the pinned requirements
	$(COMPILE) --extra all pyproject.toml --output-file requirements/all.txt
	$(COMPILE) --constraint requirements/all.txt --extra operator pyproject.toml --output-file requirements/operator.txt
	$(COMPILE) --constraint requirements/all.txt --extra trainer --extra data pyproject.toml --output-file requirements/trainer.txt
	echo 'hatchling>=1.27' | $(COMPILE) - --output-file requirements/build.txt

clean: ## Remove runs, caches and the virtual environment
	rm -rf runs $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
