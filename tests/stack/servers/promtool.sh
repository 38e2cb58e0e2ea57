#!/bin/bash
# Prometheus' promtool (Debian's) to test alerts with. It is taken out of its package; nothing is installed on the
# machine and no server starts. Prints its path.
# usage: promtool.sh
. "$(dirname "$0")/lib.sh"
PROGRAM=$CACHE/promtool
( flock 8
  [ ! -x "$PROGRAM" ] || exit 0
  TMP=$(mktemp -d "$CACHE/promtool.XXXXXX")
  trap 'rm -rf "$TMP"' EXIT
  cd "$TMP"
  echo "fetching promtool" >&2
  fetch() { apt-get download -qq -o APT::Sandbox::User="$(id -un)" prometheus; }
  fetch 2>/dev/null || { ( flock 7; as_root apt-get update -qq ) 7>"$CACHE/apt.lock"; fetch; } # no lists yet, or old ones
  dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
  mv usr/bin/promtool "$PROGRAM" ) 8>"$CACHE/promtool.lock" >&2
echo "$PROGRAM"
