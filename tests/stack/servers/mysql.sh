#!/bin/bash
# Oracle MySQL (Debian sid's, 9.x) on loopback: user test, password test, all rights. It runs through its own
# libc, unpacked in the cache; nothing is installed on the machine.
# usage: STATE=folder [MYSQL_EXTRA="--log-bin ..."] mysql.sh
. "$(dirname "$0")/lib.sh"
server mysql; already_up
ROOT=$CACHE/sid-mysql
"$HERE/sid-fetch.sh" "$ROOT" mysql-server-core mysql-client-core 9>&-
PORT=$(keep_port "$DIR/port") SOCK=$DIR/my.sock
free "$PORT"

mkdir -p "$DIR/tmp" # one of its own: a server that starts may remove the temporary tables of another
LD=("$ROOT/usr/lib64/ld-linux-x86-64.so.2" --library-path "$ROOT/usr/lib/x86_64-linux-gnu:$ROOT/usr/lib/mysql/private")
CLIENT=("${LD[@]}" "$ROOT/usr/bin/mysql" --no-defaults -uroot -S "$SOCK")
SERVER=("${LD[@]}" "$ROOT/usr/sbin/mysqld" --no-defaults --user="$(id -un)" --basedir="$ROOT/usr" --datadir="$DIR/data" --tmpdir="$DIR/tmp"
  --lc-messages-dir="$ROOT/usr/share/mysql" --character-sets-dir="$ROOT/usr/share/mysql/charsets"
  --plugin-dir="$ROOT/usr/lib/mysql/plugin" --mysqlx=OFF --secure-file-priv= --log-error="$DIR/error.log"
  --innodb-flush-method=nosync --innodb-doublewrite=OFF) # tests make tables all the time, and kill neither it nor the machine
if [ ! -e "$DIR/initialised" ]; then
  rm -rf "$DIR/data"
  "${SERVER[@]}" --initialize-insecure || { tail -n 20 "$DIR/error.log" >&2; exit 1; }
  touch "$DIR/initialised"
fi
launch "${SERVER[@]}" --socket="$SOCK" --port="$PORT" --bind-address=127.0.0.1 --skip-name-resolve --max-connections=400 \
  --pid-file="$DIR/mysqld.pid" --innodb-buffer-pool-size="${MYSQL_POOL:-256M}" --innodb-flush-log-at-trx-commit=2 \
  --skip-log-bin --performance-schema=OFF ${MYSQL_EXTRA:-}
wait_for 60 "${CLIENT[@]}" -e 'SELECT 1'
"${CLIENT[@]}" -e "
  CREATE USER IF NOT EXISTS test@'127.0.0.1' IDENTIFIED BY 'test';
  GRANT ALL ON *.* TO test@'127.0.0.1' WITH GRANT OPTION"
up "127.0.0.1:$PORT"
