#!/usr/bin/env bash
# binaries.sh [NAME...]: static binaries from pinned Go modules, kept in the cache; without a name, all.
# Static, because most of them are the only file of an image.
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
export CGO_ENABLED=0
MINOR=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")
KNOWN="-X k8s.io/component-base/version"
KUBERNETES_FLAGS="$KNOWN.gitVersion=$KUBERNETES_VERSION $KNOWN.gitMajor=1 $KNOWN.gitMinor=$MINOR $KNOWN.gitTreeState=clean"
KUBERNETES=../controlplane/kubernetes
ALL=(kind crictl coredns kube-router runc-wrap pod-network pause kube-scheduler kube-proxy kubelet kubeadm)

build() { # build NAME MODULE PACKAGE [LINKER FLAGS]: unless it is there, of the same sources.
  local made_of
  made_of=$(cd "$KIND_FOLDER/$2" && find . -name 'go.*' -o -name '*.go' | sort | xargs cat | sha256sum)
  if [ -x "$BIN/$1" ] && [ "$(cat "$BIN/$1.of" 2>/dev/null)" = "$made_of" ]; then return; fi
  need go "golang, 1.26 or newer"
  step "building $1"
  (cd "$KIND_FOLDER/$2" && nice go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w ${4:-}" -o "$BIN/.$1.$$" "$3")
  mv "$BIN/.$1.$$" "$BIN/$1"
  echo "$made_of" >"$BIN/$1.of"
}

build_one() {
  case $1 in
    kind) build kind modules/kind sigs.k8s.io/kind ;;
    crictl) build crictl modules/crictl sigs.k8s.io/cri-tools/cmd/crictl ;;
    coredns) build coredns modules/coredns . ;;
    kube-router) build kube-router modules/kube-router github.com/cloudnativelabs/kube-router/v2/cmd/kube-router ;;
    runc-wrap | pod-network | pause) build "$1" node "./$1" ;;
    kube-scheduler | kube-proxy | kubelet | kubeadm) build "$1" "$KUBERNETES" "k8s.io/kubernetes/cmd/$1" "$KUBERNETES_FLAGS" ;;
    *) fail "binaries.sh: got $1, expected one of ${ALL[*]}" ;;
  esac
}

if [ $# = 0 ]; then
  python3 "$ROOT/hack/controlplane/build.py" >&2
  for name in etcd kube-apiserver kube-controller-manager kubectl; do
    ln -sf "$(python3 "$ROOT/hack/controlplane/build.py" --find)/$name" "$BIN/$name"
  done
  set -- "${ALL[@]}"
fi
for name in "$@"; do
  build_one "$name"
done
