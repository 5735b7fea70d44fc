#!/usr/bin/env bash
# images.sh TARGET...: spes-operator and spes-trainer, from the Dockerfile's targets operator and trainer.
#
# Where the daemon reaches a registry they stand on the Dockerfile's own base images, or on BASE_IMAGE and
# BUILD_IMAGE. Elsewhere both are made here from Debian packages, and wheels are fetched outside of the build:
# the build then needs no network and trusts no other certificates.
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
DEBIAN=$CACHE/debian/python-build
WHEELS=$CACHE/wheels
SUITE=bookworm
SUITE_PYTHON=3.11 # of that release of Debian
OWN_BASE=spes-kind-python:$SUITE
OWN_BUILD_BASE=spes-kind-python-build
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}

fetch_wheels() { # fetch_wheels REQUIREMENTS...: the pinned wheels for the suite's Python.
  local name
  mkdir -p "$WHEELS"
  for name in "$@"; do
    cmp -s "$ROOT/requirements/$name.txt" "$WHEELS/$name.txt.is" && continue
    step "wheels of requirements/$name.txt"
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --require-hashes --only-binary=:all: --no-deps --python-version "$SUITE_PYTHON" \
      --requirement "$ROOT/requirements/$name.txt" --dest "$WHEELS"
    cp "$ROOT/requirements/$name.txt" "$WHEELS/$name.txt.is"
  done
}

make_base() { # Python, what it loads, and certificates: no shell, no package manager.
  local file library stage=$CACHE/python-stage
  if docker image inspect "$OWN_BASE" >/dev/null 2>&1; then return; fi
  step "$OWN_BASE"
  rm -rf --one-file-system "$stage"
  mkdir -p "$stage"/{etc/ssl/certs,tmp,proc,sys,dev,usr/bin,usr/sbin,usr/lib,usr/lib64}
  chmod 1777 "$stage/tmp"
  for file in bin sbin lib lib64; do ln -s "usr/$file" "$stage/$file"; done
  cp "$DEBIAN"/etc/{passwd,group,nsswitch.conf} "$stage/etc/"
  cp "$DEBIAN/etc/ssl/certs/ca-certificates.crt" "$stage/etc/ssl/certs/"
  cp -a "$DEBIAN/usr/lib/python$SUITE_PYTHON" "$DEBIAN/usr/lib/ssl" "$stage/usr/lib/"
  cp -a "$DEBIAN/usr/bin/python$SUITE_PYTHON" "$stage/usr/bin/"
  ln -s "python$SUITE_PYTHON" "$stage/usr/bin/python3"
  ln -s "python$SUITE_PYTHON" "$stage/usr/bin/python"
  for file in "/usr/bin/python$SUITE_PYTHON" /usr/lib/x86_64-linux-gnu/libstdc++.so.6 $(cd "$DEBIAN" && find "usr/lib/python$SUITE_PYTHON" -name '*.so' -printf '/%p '); do
    for library in $(chroot "$DEBIAN" ldd "$file" | grep -o '/[^ ]*' || true); do
      [ -e "$stage$library" ] || install -D "$DEBIAN$library" "$stage$library"
    done
  done
  for library in "$DEBIAN"/usr/lib/x86_64-linux-gnu/{libstdc++,libpthread,librt,libdl,libutil,libresolv,libnss_dns,libnss_files}.so.[0-9]; do # of wheels
    install -D "$library" "$stage/usr/lib/x86_64-linux-gnu/$(basename "$library")"
  done
  tar -C "$stage" --numeric-owner --owner 0 --group 0 --exclude=EXTERNALLY-MANAGED -c . | docker import - "$OWN_BASE" >/dev/null
  rm -rf --one-file-system "$stage"
}

make_build_base() { # With pip, and the wheels in place of an index.
  if [ -e "$WHEELS/base.is" ] && cmp -s <(cat "$WHEELS"/*.txt.is) "$WHEELS/base.is" && docker image inspect "$OWN_BUILD_BASE:wheels" >/dev/null 2>&1; then return; fi
  "$KIND_FOLDER/debian.sh" "$DEBIAN" $SUITE python3 python-is-python3 ca-certificates libstdc++6 python3-venv python3-pip
  step "$OWN_BUILD_BASE"
  tar -C "$DEBIAN" --numeric-owner --exclude=EXTERNALLY-MANAGED -c . | docker import - "$OWN_BUILD_BASE:debian" >/dev/null
  printf 'FROM %s\nENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels\nCOPY . /wheels\n' "$OWN_BUILD_BASE:debian" >"$WHEELS/Dockerfile"
  DOCKER_BUILDKIT=0 docker build --quiet --tag "$OWN_BUILD_BASE:wheels" "$WHEELS" >/dev/null 2>&1
  cat "$WHEELS"/*.txt.is >"$WHEELS/base.is"
}

[ $# -gt 0 ] || fail "usage: images.sh operator|trainer..."
version=$(sed -nE 's/^version = "(.*)"/\1/p' "$ROOT/pyproject.toml")
revision=$(git -C "$ROOT" rev-parse HEAD 2>/dev/null || echo unknown)
if [ -z "${BASE_IMAGE:-}${BUILD_IMAGE:-}" ] && ! has_registry; then
  fetch_wheels build "$@"
  make_build_base
  make_base
  BASE_IMAGE=$OWN_BASE BUILD_IMAGE=$OWN_BUILD_BASE:wheels
fi
for target in "$@"; do
  step "spes-$target:$version"
  docker build --target "$target" --tag "spes-$target:$version" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
    ${BASE_IMAGE:+--build-arg "BASE_IMAGE=$BASE_IMAGE"} ${BUILD_IMAGE:+--build-arg "BUILD_IMAGE=$BUILD_IMAGE"} "$ROOT" >"$CACHE/$target.log" 2>&1 ||
    { tail -n 40 "$CACHE/$target.log" >&2; fail "the build of target $target failed; all it said is in $CACHE/$target.log"; }
  echo "spes-$target:$version $(($(docker image inspect --format '{{.Size}}' "spes-$target:$version") / 1000000)) MB"
done
