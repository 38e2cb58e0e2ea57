#!/bin/bash
# MariaDB (Debian's, 10.11 on bookworm) on loopback: user test, password test, all rights; root by socket.
# usage: STATE=folder [MARIADB_EXTRA="--log-bin ..."] mariadb.sh
. "$(dirname "$0")/lib.sh"
server mariadb; already_up
need mariadbd mariadb-server-core       # the core packages have the programs and no daemon of their own
need mariadb mariadb-client-core
export PATH=$PATH:/usr/sbin
PORT=$(keep_port "$DIR/port") SOCK=$DIR/my.sock
free "$PORT"

if [ ! -e "$DIR/initialised" ]; then
  mkdir -p "$DIR/tmp"
  install() {
    rm -rf "$DIR/data"
    mariadb-install-db --no-defaults --datadir="$DIR/data" --tmpdir="$DIR/tmp" --user="$(id -un)" --auth-root-authentication-method=normal \
      --skip-test-db >"$DIR/install.log" 2>&1
  }
  # Several at once have failed on a busy machine; once more tells a moment from a fault.
  install || { echo "mariadb-install-db: once more, after" >&2; head -n 12 "$DIR/install.log" >&2; install; } || { cat "$DIR/install.log" >&2; exit 1; }
  touch "$DIR/initialised"
fi
mkdir -p "$DIR/tmp" # one of its own: a server that starts removes the temporary tables of another
launch mariadbd --no-defaults --user="$(id -un)" --datadir="$DIR/data" --tmpdir="$DIR/tmp" --socket="$SOCK" --port="$PORT" \
  --bind-address=127.0.0.1 --skip-name-resolve --log-error="$DIR/error.log" --character-set-server=utf8mb4 \
  --max-connections=400 --innodb-buffer-pool-size="${MARIADB_POOL:-256M}" --innodb-flush-log-at-trx-commit=2 \
  --innodb-flush-method=nosync ${MARIADB_EXTRA:-} # tests kill servers, never the machine
wait_for 60 mariadb --no-defaults -uroot -S "$SOCK" -e 'SELECT 1'
mariadb --no-defaults -uroot -S "$SOCK" -e "
  CREATE USER IF NOT EXISTS test@'127.0.0.1' IDENTIFIED BY 'test';
  GRANT ALL ON *.* TO test@'127.0.0.1' WITH GRANT OPTION"
up "127.0.0.1:$PORT"
