#!/bin/bash
# DuckDB's command line (Debian sid's) with its own libc; Parquet and JSON are built in. Prints its path.
# usage: duckdb.sh
. "$(dirname "$0")/lib.sh"
ROOT=$CACHE/sid-duckdb PROGRAM=$CACHE/duckdb
"$HERE/sid-fetch.sh" "$ROOT" duckdb
TMP=$(mktemp "$CACHE/duckdb.XXXXXX")
cat >"$TMP" <<S
#!/bin/sh
exec $ROOT/usr/lib64/ld-linux-x86-64.so.2 --library-path $ROOT/usr/lib/x86_64-linux-gnu $ROOT/usr/bin/duckdb "\$@"
S
chmod 755 "$TMP"
mv "$TMP" "$PROGRAM"
echo "$PROGRAM"
