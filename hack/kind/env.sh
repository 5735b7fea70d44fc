# shellcheck shell=bash disable=SC2034
# Sourced by the scripts beside it: where things lie, and which Docker daemon is meant.
set -euo pipefail
KIND_FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$KIND_FOLDER/../.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/spes/kind
BIN=$CACHE/bin
OWN_SOCKET=$CACHE/docker/docker.sock
KUBERNETES_VERSION=$(sed -nE 's#^\s*k8s\.io/kubernetes (v[0-9.]+).*#\1#p' "$ROOT/hack/controlplane/kubernetes/go.mod" | head -n 1)
NODE_IMAGE=spes-kind-node:$KUBERNETES_VERSION

mkdir -p "$BIN"
export PATH=$BIN:$PATH
# A daemon that dockerd.sh started is taken before the machine's own, unless DOCKER_HOST says otherwise.
if [ -z "${DOCKER_HOST:-}" ] && [ -S "$OWN_SOCKET" ]; then export DOCKER_HOST=unix://$OWN_SOCKET; fi

step() { echo "[$SECONDS s] $*" >&2; }
fail() { echo "$*" >&2; exit 1; }
need() { # need COMMAND PACKAGE...
  command -v "$1" >/dev/null || fail "$1 is missing; install it first, on Debian with: apt-get install --no-install-recommends ${*:2}"
}

PROBE_SECONDS=60
has_registry() { # Whether the daemon can pull images: as SPES_REGISTRY=yes|no says, else it tries one of 10 kB.
  case ${SPES_REGISTRY:-probe} in
    yes) ;;
    no) return 1 ;;
    probe) timeout "$PROBE_SECONDS" docker pull --quiet hello-world >/dev/null 2>&1 ;;
    *) fail "SPES_REGISTRY: got $SPES_REGISTRY, expected yes, no or nothing" ;;
  esac
}
