#!/bin/bash
# ClickHouse 18.16 (Debian bookworm's) on loopback: native protocol, user default, no password, UTC.
# usage: STATE=folder ch18.sh
. "$(dirname "$0")/lib.sh"
server ch18; already_up
need curl curl
need clickhouse-server clickhouse-server clickhouse-client
PORT=$(keep_port "$DIR/port") HTTP=$(keep_port "$DIR/http") INTERSERVER=$(keep_port "$DIR/interserver")
free "$PORT"; free "$HTTP"; free "$INTERSERVER"

mkdir -p "$DIR"/{data,etc}
cat >"$DIR/etc/config.xml" <<X
<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><log>$DIR/server.log</log><errorlog>$DIR/error.log</errorlog><size>50M</size><count>2</count></logger>
  <tcp_port>$PORT</tcp_port><http_port>$HTTP</http_port><interserver_http_port>$INTERSERVER</interserver_http_port>
  <listen_host>127.0.0.1</listen_host><interserver_http_host>127.0.0.1</interserver_http_host>
  <max_connections>256</max_connections><max_concurrent_queries>100</max_concurrent_queries><keep_alive_timeout>3</keep_alive_timeout>
  <uncompressed_cache_size>67108864</uncompressed_cache_size><mark_cache_size>268435456</mark_cache_size>
  <path>$DIR/data/</path>
  <user_files_path>$DIR/data/user_files/</user_files_path><format_schema_path>$DIR/data/format_schemas/</format_schema_path>
  <users_config>$DIR/etc/users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
  <timezone>UTC</timezone><mlock_executable>false</mlock_executable>
  <builtin_dictionaries_reload_interval>3600</builtin_dictionaries_reload_interval>
</yandex>
X
cat >"$DIR/etc/users.xml" <<X
<?xml version="1.0"?>
<yandex>
  <profiles><default><max_memory_usage>4000000000</max_memory_usage><load_balancing>random</load_balancing></default></profiles>
  <users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
  <quotas><default></default></quotas>
</yandex>
X
launch clickhouse-server --config-file="$DIR/etc/config.xml"
wait_for 60 curl -fs "http://127.0.0.1:$HTTP/ping"
up "127.0.0.1:$PORT"
