# Common part of the scripts beside it; sourced, not run.
#
# STATE  folder of all state, one folder a server; keep it short: a socket path has at most 107 bytes
# CACHE  folder of what is built or downloaded, shared by all stacks of this user
#
# Every script may be called again at any time: a server that is up is left alone and its line is printed
# again. The last line is always `NAME up HOST:PORT pid N`. After a kill -9 of the pid the script brings the
# same data back.

set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=$(realpath -m "${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coldtier}")
mkdir -p "$CACHE"

# server NAME: sets DIR and PIDF, and lets one script at a time work on this server.
server() {
  STATE=$(realpath -m "${STATE:?folder of the state}")
  NAME=$1 DIR=$STATE/$1 PIDF=$STATE/$1/pid
  mkdir -p "$DIR"
  exec 9>"$DIR/lock"
  flock 9
}

# alive: the pid file's process is there and is ours: its command line names this server's folder.
alive() { [ -s "$PIDF" ] && grep -qaF -- "$DIR/" "/proc/$(cat "$PIDF")/cmdline" 2>/dev/null; }

# already_up: ends the script when the server is up; clears away a start that was cut short.
already_up() {
  if alive && [ -s "$DIR/up" ]; then cat "$DIR/up"; exit 0; fi
  end
}

# end: ends this server's own process, by force after 20 seconds.
end() {
  if alive; then
    local pid; pid=$(cat "$PIDF")
    kill -CONT "$pid"
    kill "$pid"
    for _ in $(seq 400); do alive || break; sleep 0.05; done
    if alive; then kill -9 "$pid"; fi
  fi
  rm -f "$PIDF" "$DIR/up"
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# need COMMAND PACKAGE...: installs Debian packages when COMMAND is missing. At RUNLEVEL 1 Debian does not
# start the daemons that come with them.
need() {
  local command=$1; shift
  PATH=$PATH:/usr/sbin:/sbin command -v "$command" >/dev/null && return
  echo "installing $*" >&2
  ( flock 8
    as_root apt-get update -qq
    as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o DPkg::Lock::Timeout=300 "$@" >/dev/null ) 8>"$CACHE/apt.lock" 9>&-
}

# go_tool NAME PACKAGE VERSION: builds a Go program into the cache unless that version is there.
go_tool() {
  local name=$1 package=$2 version=$3
  ( flock 8
    go version -m "$CACHE/$name" 2>/dev/null | grep -qE "^\smod\s\S+\s$version\b" && exit
    echo "building $name $version (a few minutes, once)" >&2
    GOWORK=off GOFLAGS= GOBIN=$CACHE go install "$package@$version" ) 8>"$CACHE/$name.lock" 9>&-
}

# free PORT: fails when someone listens there already.
free() {
  if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
    echo "$NAME: port $1 is taken" >&2; exit 1
  fi
}

# port: prints a port where nobody listens, below the range that outgoing connections take theirs from.
port() {
  local p
  while :; do
    p=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p"; return; }
  done
}

# keep_port FILE: the port in FILE, or a free one that is written there: a restart keeps its address.
keep_port() {
  [ -s "$1" ] || port >"$1"
  cat "$1"
}

# launch COMMAND...: starts it in the background, in a session of its own, in the server's folder.
launch() {
  rm -f "$PIDF"
  ( cd "$DIR"; exec setsid bash -c 'echo $$ >"$0"; exec "$@"' "$PIDF" "$@" ) </dev/null >"$DIR/log" 2>&1 9>&- &
}

# wait_for SECONDS COMMAND...: until COMMAND succeeds; fails when the process dies or time is up. A process has no
# command line for a moment while it becomes the server: dead is who has none ten times in turn.
wait_for() {
  local end=$((SECONDS + $1)) dead=0; shift
  until "$@" >/dev/null 2>&1; do
    if [ -s "$PIDF" ] && ! alive; then dead=$((dead + 1)); else dead=0; fi
    if [ "$dead" -ge 10 ] || [ "$SECONDS" -ge "$end" ]; then
      echo "$NAME did not start; its logs end:" >&2
      tail -n 20 "$DIR"/*log* >&2
      exit 1
    fi
    sleep 0.05
  done
}

# up HOST:PORT: the closing line.
up() { echo "$NAME up $1 pid $(cat "$PIDF")" | tee "$DIR/up"; }

# debian_mirror: the Debian mirror in this machine's own apt sources.
debian_mirror() {
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } |
    sed -nE '/^(URIs:|deb( +\[[^]]*\])?) +(https?:[^ ]*\/debian)\/?( .*)?$/{s//\3/p;q}'
}
