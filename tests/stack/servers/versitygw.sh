#!/bin/bash
# versitygw (S3 over a folder) on loopback, with versioning and object lock: key testkey, secret testsecret,
# region us-east-1, path style. Objects are plain files in $STATE/versitygw/data, which must allow user xattrs.
# usage: STATE=folder versitygw.sh
. "$(dirname "$0")/lib.sh"
server versitygw; already_up
need curl curl
go_tool versitygw github.com/versity/versitygw/cmd/versitygw v1.8.0
PORT=$(keep_port "$DIR/port")
free "$PORT"

mkdir -p "$DIR"/{data,versions,iam}
export ROOT_ACCESS_KEY=testkey ROOT_SECRET_KEY=testsecret
launch "$CACHE/versitygw" --port "127.0.0.1:$PORT" --region us-east-1 --quiet --health /health --iam-dir "$DIR/iam" \
  posix --versioning-dir "$DIR/versions" "$DIR/data"
wait_for 30 curl -fs "http://127.0.0.1:$PORT/health"
up "127.0.0.1:$PORT"
