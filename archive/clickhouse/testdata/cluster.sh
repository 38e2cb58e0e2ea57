#!/bin/bash
# Runs TestCluster on a private cluster of real servers, 2 shards of 2 replicas each, with
# ZooKeeper, all on loopback in a temporary folder. Needs Debian's packages clickhouse-server
# (18.16) and zookeeper. Takes about a minute; not part of `make test`.
# usage: archive/clickhouse/testdata/cluster.sh   [go test flags]
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
pids=()
stop() { for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done; wait; rm -rf "$dir"; }
trap stop EXIT

# Free ports: a run of 13 that nobody listens on.
base=$((20000 + RANDOM % 20000))
while ss -Hltn | awk '{print $4}' | grep -qE ":($(seq -s'|' $base $((base + 12))))$"; do base=$((base + 17)); done
zk=$base

mkdir -p "$dir/zk/data"
cat >"$dir/zk/zoo.cfg" <<X
tickTime=1000
dataDir=$dir/zk/data
clientPort=$zk
clientPortAddress=127.0.0.1
admin.enableServer=false
X
java -Dzookeeper.root.logger=WARN -cp "/etc/zookeeper/conf:$(echo /usr/share/java/zookeeper*.jar /usr/share/java/netty*.jar /usr/share/java/slf4j*.jar /usr/share/java/log4j*.jar /usr/share/java/commons-*.jar /usr/share/java/*metrics*.jar /usr/share/java/snappy*.jar | tr ' ' ':')" \
  org.apache.zookeeper.server.ZooKeeperServerMain "$dir/zk/zoo.cfg" >"$dir/zk/log" 2>&1 &
pids+=($!)

replica() { # shard replica: its place in the cluster's definition
  echo "<replica><host>127.0.0.1</host><port>$((base + 1 + ($1 * 2 + $2) * 3))</port></replica>"
}
shards=
for s in 0 1; do shards+="<shard><internal_replication>true</internal_replication>$(replica $s 0)$(replica $s 1)</shard>"; done

addrs=()
for s in 0 1; do for r in 0 1; do
  d=$dir/ch$s$r port=$((base + 1 + (s * 2 + r) * 3))
  mkdir -p "$d"/{data,etc}
  cat >"$d/etc/config.xml" <<X
<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><log>$d/server.log</log><errorlog>$d/error.log</errorlog></logger>
  <tcp_port>$port</tcp_port><http_port>$((port + 1))</http_port><interserver_http_port>$((port + 2))</interserver_http_port>
  <listen_host>127.0.0.1</listen_host><interserver_http_host>127.0.0.1</interserver_http_host>
  <mark_cache_size>67108864</mark_cache_size><path>$d/data/</path>
  <user_files_path>$d/data/user_files/</user_files_path><format_schema_path>$d/data/format_schemas/</format_schema_path>
  <users_config>$d/etc/users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
  <timezone>UTC</timezone><mlock_executable>false</mlock_executable>
  <zookeeper><node><host>127.0.0.1</host><port>$zk</port></node></zookeeper>
  <remote_servers><c1>$shards</c1></remote_servers>
  <macros><shard>$s</shard><replica>$r</replica></macros>
  <distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>
</yandex>
X
  cat >"$d/etc/users.xml" <<X
<?xml version="1.0"?>
<yandex>
  <profiles><default><load_balancing>in_order</load_balancing></default></profiles>
  <users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
  <quotas><default></default></quotas>
</yandex>
X
  clickhouse-server --config-file="$d/etc/config.xml" >"$d/out" 2>&1 &
  pids+=($!)
  addrs+=("127.0.0.1:$port")
done; done
for a in "${addrs[@]}"; do
  for _ in $(seq 300); do curl -fs "http://127.0.0.1:$((${a##*:} + 1))/ping" >/dev/null && continue 2; sleep 0.1; done
  echo "ClickHouse at $a does not answer"; tail -n 20 "$dir"/zk/log "$dir"/ch*/error.log; exit 1
done
COLDTIER_TEST_CLUSTER="c1@$(IFS=,; echo "${addrs[*]}")" go test -count=1 -run '^TestCluster$' -v "$@" .
