#!/usr/bin/env bash
# dockerd.sh start|stop: a Docker daemon of its own, for machines that have none running.
# Nothing else here starts one. Everything of it lies in the cache, and `stop` ends what `start` began.
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
HOME_OF_DAEMON=$CACHE/docker
PID_FILE=$HOME_OF_DAEMON/docker.pid
WAIT_SECONDS=60

is_ours() { # The number in the file may be another process' by now.
  [ -s "$PID_FILE" ] && grep -qs "$HOME_OF_DAEMON" "/proc/$(cat "$PID_FILE")/cmdline"
}

start() {
  [ "$(id -u)" = 0 ] || fail "dockerd.sh: got user $(id -un), expected root; run it with sudo, or start Docker as your system does"
  if is_ours; then echo "running: $OWN_SOCKET"; return; fi
  need dockerd docker.io iptables
  "$KIND_FOLDER/binaries.sh" runc-wrap
  mkdir -p "$HOME_OF_DAEMON"
  rm -f "$PID_FILE"
  # Each node has a kubelet, a containerd and a systemd that watch files: the usual 128 are too few.
  [ "$(sysctl -n fs.inotify.max_user_instances)" -ge 8192 ] || sysctl -qw fs.inotify.max_user_instances=8192 fs.inotify.max_user_watches=1048576
  ulimit -n "$(ulimit -Hn)"
  setsid dockerd --data-root "$HOME_OF_DAEMON/data" --exec-root "$HOME_OF_DAEMON/exec" --pidfile "$PID_FILE" --host "unix://$OWN_SOCKET" \
    --add-runtime "wrapped=$BIN/runc-wrap" --default-runtime wrapped --storage-driver overlay2 >"$HOME_OF_DAEMON/dockerd.log" 2>&1 </dev/null &
  for _ in $(seq $((WAIT_SECONDS * 5))); do
    if docker --host "unix://$OWN_SOCKET" info >/dev/null 2>&1; then echo "started: $OWN_SOCKET"; return; fi
    sleep 0.2
  done
  tail -n 20 "$HOME_OF_DAEMON/dockerd.log" >&2
  stop
  fail "dockerd did not answer within $WAIT_SECONDS s; its last lines are above"
}

stop() {
  is_ours || { echo "not running"; return; }
  local pid
  pid=$(cat "$PID_FILE")
  kill "$pid"
  for _ in $(seq $((WAIT_SECONDS * 5))); do
    kill -0 "$pid" 2>/dev/null || { rm -f "$OWN_SOCKET"; echo "stopped"; return; }
    sleep 0.2
  done
  fail "dockerd (process $pid) did not stop within $WAIT_SECONDS s"
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  *) fail "usage: dockerd.sh start|stop" ;;
esac
