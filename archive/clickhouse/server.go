package clickhouse

import (
	"fmt"
	"strconv"
	"strings"
)

// server is what is known of the server: its version, from which follows what it can do.
type server struct {
	version      string
	major, minor int
}

func parseVersion(v string) (server, error) {
	parts := strings.SplitN(v, ".", 3)
	if len(parts) < 2 {
		return server{}, fmt.Errorf("ClickHouse version %q: want the form 26.7.1.2", v)
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return server{}, fmt.Errorf("ClickHouse version %q: want the form 26.7.1.2", v)
	}
	return server{v, major, minor}, nil
}

func (s server) atLeast(major, minor int) bool {
	return s.major > major || (s.major == major && s.minor >= minor)
}

// Each of these is asked of a release in which the feature was no longer experimental
// and its later corrections were in; on older servers the plainer form is as exact.

func (s server) codecs() bool         { return s.atLeast(20, 3) }
func (s server) lowCardinality() bool { return s.atLeast(20, 3) }

// dateTime64 also stands for Date32 and decimals of 76 digits. Older servers know
// DateTime64, but not yet the years 1900 to 2299.
func (s server) dateTime64() bool { return s.atLeast(22, 8) }

func (s server) asyncInserts() bool { return s.atLeast(21, 11) }

// textSettings: older servers take settings over the native protocol in a binary
// form for which the driver knows numbers only.
func (s server) textSettings() bool { return s.atLeast(20, 3) }

// altersDistributed: older servers refuse ALTER ON CLUSTER of a table that is not
// replicated itself.
func (s server) altersDistributed() bool { return s.atLeast(20, 3) }

// settings are pinned on every connection, so that a user's profile cannot change
// what an insert or a read means.
func (s server) settings(c Config) map[string]any {
	m := map[string]any{
		"insert_deduplicate":      0, // C2: a block that is sent again must not vanish; reads drop what came twice
		"insert_distributed_sync": 1, // an insert into the cluster returns when the shards have it
		"skip_unavailable_shards": 0, // C7: a missing shard is an error, never a shorter answer
		"max_execution_time":      int(c.Timeout.Seconds()) + 1,
		"max_result_rows":         0,
		"max_rows_to_read":        0,
		"fallback_to_stale_replicas_for_distributed_queries": 0,
	}
	if c.Cluster != "" {
		// A read meets the replica that took the insert, so that a copy that was just made
		// is whole although the others do not have it yet.
		m["prefer_localhost_replica"] = 0
		if s.textSettings() {
			m["load_balancing"] = inOrder
		}
	}
	if s.asyncInserts() {
		m["async_insert"] = 0 // C4; the default of new servers is 1
		m["wait_for_async_insert"] = 1
		m["limit"], m["offset"] = 0, 0 // these settings cut every result
	}
	if s.textSettings() {
		for _, name := range overflowModes {
			m[name] = "throw"
		}
	}
	return m
}

const inOrder = "in_order"

// overflowModes are the settings that can make a query end early without an error.
var overflowModes = [...]string{"timeout_overflow_mode", "read_overflow_mode", "result_overflow_mode", "sort_overflow_mode",
	"group_by_overflow_mode", "set_overflow_mode", "transfer_overflow_mode"}
