#!/usr/bin/env bash
# debian.sh FOLDER SUITE PACKAGE...: a minimal Debian with these packages in FOLDER, once.
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
target=$1 suite=$2
packages=$(IFS=,; echo "${*:3}")
mkdir -p "$(dirname "$target")"
exec 9>"$target.lock"
flock --timeout 1800 9 || fail "debian.sh: another one has been at $target for half an hour"
if [ -e "$target.is" ] && [ "$(cat "$target.is")" = "$suite $packages" ]; then exit 0; fi
[ "$(id -u)" = 0 ] || fail "debian.sh: got user $(id -un), expected root: debootstrap needs it"
need debootstrap debootstrap
# The mirror that this machine's apt uses, if it is a Debian.
mirror=${SPES_DEBIAN_MIRROR:-$(sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb (\[[^]]*\] )?([^ ]+) .*/\2/p' \
  /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1 || true)}
step "debootstrap $suite"
umount "$target"/{proc,sys} 2>/dev/null || true # of one that was interrupted
rm -rf --one-file-system "$target" "$target.is"
nice debootstrap --variant=minbase --include="$packages" "$suite" "$target" ${mirror:+"$mirror"} >"$target.log" ||
  fail "debootstrap failed, see $target.log; SPES_DEBIAN_MIRROR names another mirror (got ${mirror:-none})"
rm -rf "$target"/var/cache/apt/* "$target"/var/lib/apt/lists/* "$target"/usr/share/{doc,man,info,lintian,bug,locale}/*
echo "$suite $packages" >"$target.is"
