#!/usr/bin/env bash
# node-image.sh: kind's node image from Debian packages and binaries.sh, for machines without a registry.
# It does what images/base/Dockerfile of kind and `kind build node-image` do. Bookworm, because the systemd
# of later releases halts for half a minute on cgroup v1.
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
DEBIAN=$CACHE/debian/node
WORK=$CACHE/node-image
ARCHIVES=$WORK/archives
PACKAGES=(systemd systemd-sysv conntrack iptables nftables ipset iproute2 ethtool util-linux mount kmod libseccomp2 pigz e2fsprogs
  bash ca-certificates curl jq procps containerd runc containernetworking-plugins)
EXTENSIONS=/usr/lib/x86_64-linux-gnu/xtables # of iptables
CONTAINERD_SECONDS=60

image_of() { # The full name of an image that kubeadm asks for.
  kubeadm config images list --kubernetes-version "$KUBERNETES_VERSION" 2>/dev/null | grep "/$1:"
}

copy_with_libraries() { # copy_with_libraries FILE...: programs of Debian into $STAGE, with all they load.
  local file library
  for file in "$@"; do
    file=$(chroot "$DEBIAN" readlink -f "$file")
    for library in "$file" $(chroot "$DEBIAN" ldd "$file" 2>/dev/null | grep -o '/[^ ]*' || true); do
      [ -e "$STAGE$library" ] || install -D "$DEBIAN$library" "$STAGE$library"
    done
  done
}

stage_empty() {
  STAGE=$WORK/stage
  rm -rf "$STAGE"
  mkdir -p "$STAGE"/{etc,tmp,usr/local/bin}
  echo 'root:x:0:0:root:/root:/bin/false' >"$STAGE/etc/passwd"
}

stage_network_tools() { # iptables and its kin call each other, and load extensions with libraries of their own.
  local name extensions=("$DEBIAN$EXTENSIONS"/*.so)
  stage_empty
  mkdir -p "$STAGE"/{run,proc,sys,dev,root,usr/bin,usr/sbin,usr/lib,usr/lib64}
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$STAGE/$name"; done
  cp "$DEBIAN"/etc/{protocols,services} "$STAGE/etc/" 2>/dev/null || true
  echo 'hosts: files dns' >"$STAGE/etc/nsswitch.conf"
  mkdir -p "$STAGE$EXTENSIONS"
  cp -a "$DEBIAN$EXTENSIONS/." "$STAGE$EXTENSIONS" # some are links to others
  copy_with_libraries /usr/sbin/xtables-nft-multi /usr/sbin/xtables-legacy-multi /usr/sbin/nft /usr/sbin/ipset /usr/sbin/conntrack \
    /usr/bin/ip /usr/bin/dash /usr/bin/kmod /usr/bin/cat /usr/bin/stat "${extensions[@]#"$DEBIAN"}"
  for name in {iptables,ip6tables}{,-save,-restore}; do ln -s xtables-nft-multi "$STAGE/usr/sbin/$name"; done
  ln -s dash "$STAGE/usr/bin/sh"
  ln -s ../bin/kmod "$STAGE/usr/sbin/modprobe"
  [ -e "$STAGE/usr/sbin/ip" ] || ln -s ../bin/ip "$STAGE/usr/sbin/ip"
}

pack() { # pack NAME IMAGE DESTINATION [ENTRYPOINT]: what is staged, with a binary.
  install -D "$BIN/$1" "$STAGE$3"
  python3 "$KIND_FOLDER/docker_archive.py" "$ARCHIVES/$1.tar" "$2" "$STAGE" ${4:+--entrypoint "$4"}
}

make_archives() {
  local name
  rm -rf "$ARCHIVES"
  mkdir -p "$ARCHIVES"
  for name in kube-apiserver kube-controller-manager kube-scheduler etcd; do
    stage_empty
    pack $name "$(image_of $name)" /usr/local/bin/$name
  done
  stage_empty; pack pause "$(image_of pause)" /pause /pause
  stage_empty; pack coredns "$(image_of coredns)" /coredns /coredns
  stage_network_tools; pack kube-proxy "$(image_of kube-proxy)" /usr/local/bin/kube-proxy
  for name in pod-network kube-router; do
    stage_network_tools
    pack $name localhost/$name:v1 /usr/local/bin/$name /usr/local/bin/$name
  done
}

make_root() { # The node's root file system.
  local files
  umount "$NODE/proc" 2>/dev/null || true # of one that was interrupted
  rm -rf --one-file-system "$NODE"
  cp -a "$DEBIAN" "$NODE"
  files=$(cd "$KIND_FOLDER/modules/kind" && go list -mod=readonly -m -f '{{.Dir}}' sigs.k8s.io/kind)/images/base/files
  cp -r --no-preserve=mode "$files"/{kind,etc,usr} "$NODE/"
  chmod 755 "$NODE"/usr/local/bin/* "$NODE"/kind "$NODE"/kind/bin "$NODE"/kind/bin/*
  rm -f "$NODE"/lib/systemd/system/{multi-user,local-fs}.target.wants/* "$NODE"/etc/systemd/system/*.wants/* \
    "$NODE"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
    "$NODE"/lib/systemd/system/sockets.target.wants/{*udev*,*initctl*} "$NODE"/lib/systemd/system/basic.target.wants/*
  echo 'ReadKMsg=no' >>"$NODE/etc/systemd/journald.conf"
  cp "$KIND_FOLDER"/node/units/* "$NODE/etc/systemd/system/"
  chroot "$NODE" systemctl --quiet enable kubelet.service containerd.service undo-mount-hacks.service volumes.path
  chroot "$NODE" systemctl --quiet mask systemd-binfmt.service
  mkdir -p "$NODE"/{etc/kubernetes/manifests,opt/cni/bin,etc/cni/net.d,kind/manifests}
  ln -sf /usr/bin/{containerd,ctr,containerd-shim-runc-v2} "$NODE/usr/local/bin/"
  cp -L "$NODE"/usr/lib/cni/* "$NODE/opt/cni/bin/"
  rm -rf "$NODE/usr/lib/cni"
  install "$BIN/runc-wrap" "$NODE/usr/local/sbin/runc" # before /usr/sbin in PATH
  install "$BIN/crictl" "$NODE/usr/local/bin/crictl"
  install "$BIN"/{kubeadm,kubelet,kubectl} "$NODE/usr/bin/"
  printf %s "$KUBERNETES_VERSION" >"$NODE/kind/version"
  cp "$KIND_FOLDER/manifests/cni.yaml" "$NODE/kind/manifests/default-cni.yaml"
  cp "$KIND_FOLDER/manifests/storage.yaml" "$NODE/kind/manifests/default-storage.yaml"
}

configure_containerd() {
  sed -i -e "s#^  sandbox_image = .*#  sandbox_image = \"$(image_of pause)\"#" \
    -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$NODE/etc/containerd/config.toml"
  chroot "$NODE" ctr oci spec |
    jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' >"$NODE/etc/containerd/cri-base.json"
}

preload() { # Images into the node's store, by its own containerd in a chroot.
  local archive pid
  rm -rf "$NODE"/var/lib/containerd "$NODE"/run/containerd
  mount -t proc proc "$NODE/proc"
  trap 'umount "$NODE/proc" 2>/dev/null || true' EXIT
  printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' >"$NODE/root/preload.toml"
  chroot "$NODE" containerd -c /root/preload.toml >"$WORK/preload.log" 2>&1 &
  pid=$!
  for _ in $(seq $((CONTAINERD_SECONDS * 5))); do
    chroot "$NODE" ctr info >/dev/null 2>&1 && break
    sleep 0.2
  done
  for archive in "$ARCHIVES"/*.tar; do
    chroot "$NODE" ctr --namespace=k8s.io images import --label=io.cri-containerd.pinned=pinned --all-platforms --no-unpack --digests - <"$archive" >/dev/null
  done
  kill $pid
  wait $pid || true
  umount "$NODE/proc"
  rm -rf "$NODE"/run/* "$NODE/root/preload.toml"
}

import() { # An empty build sets the stop signal, which `docker import` of older daemons refuses.
  tar -C "$NODE" --numeric-owner -c . | docker import - "$NODE_IMAGE-draft" >/dev/null
  printf 'FROM %s\nENV container=docker\nLABEL spes.made-of=%s\nSTOPSIGNAL SIGRTMIN+3\nENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]\n' \
    "$NODE_IMAGE-draft" "$made_of" |
    DOCKER_BUILDKIT=0 docker build --quiet --tag "$NODE_IMAGE" - >/dev/null 2>&1
  docker rmi "$NODE_IMAGE-draft" >/dev/null
}

# What it is made of is a label of the image: changed sources make it anew.
made_of=$(cat "$KIND_FOLDER"/{node-image.sh,binaries.sh,docker_archive.py} "$KIND_FOLDER"/manifests/* "$KIND_FOLDER"/modules/*/go.sum \
  "$KIND_FOLDER"/node/*/* "$ROOT/hack/controlplane/kubernetes/go.sum" | sha256sum | cut -c1-16)
if [ "$(docker image inspect --format '{{index .Config.Labels "spes.made-of"}}' "$NODE_IMAGE" 2>/dev/null)" = "$made_of" ]; then exit 0; fi
[ "$(id -u)" = 0 ] || fail "node-image.sh: got user $(id -un), expected root: it makes and enters a root file system"
need jq jq
"$KIND_FOLDER/binaries.sh"
"$KIND_FOLDER/debian.sh" "$DEBIAN" bookworm "${PACKAGES[@]}"
NODE=$WORK/root
step "images of the control plane"; make_archives
step "root file system"; make_root; configure_containerd
step "preload"; preload
step "docker import"; import
rm -rf --one-file-system "$NODE" "$WORK/stage"
step "$NODE_IMAGE: $(docker image inspect --format '{{.Size}}' "$NODE_IMAGE") bytes"
