#!/bin/bash
# ClickHouse 26.7 over HTTP: libchdb (the ClickHouse engine as a library, from npm) behind ../chdbd, a small
# HTTP front for clickhouse-go. No native protocol, no users.
# usage: STATE=folder chdbd.sh
. "$(dirname "$0")/lib.sh"
server chdbd; already_up
need curl curl
PACKAGE=@chdb/lib-linux-x64-gnu VERSION=26.7.3-stable.1
LIB=$CACHE/libchdb/node_modules/$PACKAGE/libchdb.so
( flock 8
  [ -e "$LIB" ] && grep -qF "\"version\": \"$VERSION\"" "$(dirname "$LIB")/package.json" && exit
  npm install --silent --no-audit --no-fund --prefix "$CACHE/libchdb" "$PACKAGE@$VERSION" ) 8>"$CACHE/libchdb.lock" 9>&-
# Named after its source, so that a changed one is built anew and a running one is never overwritten.
PROGRAM=$CACHE/chdbd-$(cat "$HERE"/../chdbd/{go.mod,go.sum,*.go} | sha256sum | cut -c1-12)
( flock 8
  [ -x "$PROGRAM" ] || (cd "$HERE/../chdbd" && GOWORK=off GOFLAGS= CGO_ENABLED=0 go build -trimpath -o "$PROGRAM" .) ) 8>"$CACHE/chdbd.lock" 9>&-
PORT=$(keep_port "$DIR/port")
free "$PORT"

launch env TZ=UTC "$PROGRAM" -addr "127.0.0.1:$PORT" -path "$DIR/data" -lib "$LIB"
wait_for 60 curl -fs "http://127.0.0.1:$PORT/ping"
up "127.0.0.1:$PORT"
