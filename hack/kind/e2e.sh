#!/usr/bin/env bash
# e2e.sh [PYTEST ARGUMENT...]: brings what tests/e2e needs, and runs it. `make e2e` calls this.
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
docker info >/dev/null 2>&1 || fail "no Docker daemon answers at ${DOCKER_HOST:-the usual socket}; start yours, or one of its own with: hack/kind/dockerd.sh start"
"$KIND_FOLDER/binaries.sh" kind
python3 "$ROOT/hack/helm/build.py" >&2
if has_registry; then
  SPES_REGISTRY=yes SPES_E2E_NODE_IMAGE=${SPES_E2E_NODE_IMAGE:-}
  # The frameworks are of this machine's Python.
  python=$("$PYTHON" -c 'import sys; print("python:%d.%d-slim" % sys.version_info[:2])')
  BASE_IMAGE=${BASE_IMAGE:-$python} BUILD_IMAGE=${BUILD_IMAGE:-$python}
  export BASE_IMAGE BUILD_IMAGE
else
  SPES_REGISTRY=no SPES_E2E_NODE_IMAGE=${SPES_E2E_NODE_IMAGE:-$NODE_IMAGE}
  if [ "$SPES_E2E_NODE_IMAGE" = "$NODE_IMAGE" ]; then "$KIND_FOLDER/node-image.sh"; fi
fi
export SPES_REGISTRY SPES_E2E_NODE_IMAGE
"$KIND_FOLDER/images.sh" operator
version=$(sed -nE 's/^version = "(.*)"/\1/p' "$ROOT/pyproject.toml")
export SPES_E2E_OPERATOR_IMAGE=spes-operator:$version SPES_E2E_TRAINER_IMAGE=spes-trainer-shared:$version
SPES_E2E_FRAMEWORKS=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
export SPES_E2E_FRAMEWORKS
docker build --quiet --build-arg "OPERATOR=$SPES_E2E_OPERATOR_IMAGE" --tag "$SPES_E2E_TRAINER_IMAGE" - <"$KIND_FOLDER/trainer-shared.Dockerfile" >"$CACHE/trainer-shared.log" 2>&1 ||
  fail "the build of $SPES_E2E_TRAINER_IMAGE failed; all it said is in $CACHE/trainer-shared.log"
cd "$ROOT"
exec nice -n 5 "$PYTHON" -m pytest tests/e2e "$@"
