package clickhouse

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Config says where ClickHouse is and how blocks are sent. Zero values of the last
// group mean the defaults.
type Config struct {
	Addrs    []string // host:port, tried in turn
	Protocol string   // "native" (default) or "http"
	Database string   // made by Migrate when missing
	Username string
	Password string
	Cluster  string // name of a cluster: replicated tables on every shard, see the package documentation
	TLS      bool

	MaxConns   int           // connections at once; 8
	BlockRows  int           // rows of one insert; 100,000
	BlockBytes int           // bytes of one insert, about; 4 MiB, while it is sent it takes some seven times that in memory
	Timeout    time.Duration // of one statement, or one try of an insert; 5 minutes
	TLSConfig  *tls.Config   // used when TLS is set; nil means the system's roots

	OnRetry func() // nil, or called whenever an insert is tried again
}

const (
	defaultMaxConns   = 8
	defaultBlockRows  = 100_000
	defaultBlockBytes = 4 << 20 // bigger ones are no faster, see BenchmarkBlockBytes, and take memory in proportion
	defaultTimeout    = 5 * time.Minute
	dialTimeout       = 10 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	var bad []error
	if len(c.Addrs) == 0 {
		bad = append(bad, errors.New("clickhouse.addrs is empty: name at least one host:port"))
	}
	switch c.Protocol {
	case "":
		c.Protocol = "native"
	case "native", "http":
	default:
		bad = append(bad, fmt.Errorf("clickhouse.protocol %q: want native or http", c.Protocol))
	}
	if c.Database == "" {
		bad = append(bad, errors.New("clickhouse.database is not set"))
	}
	for key, name := range map[string]string{"database": c.Database, "cluster": c.Cluster} {
		if err := plainName(name); err != nil {
			bad = append(bad, fmt.Errorf("clickhouse.%s: %w", key, err))
		}
	}
	if c.MaxConns <= 0 {
		c.MaxConns = defaultMaxConns
	}
	if c.BlockRows <= 0 {
		c.BlockRows = defaultBlockRows
	}
	if c.BlockBytes <= 0 {
		c.BlockBytes = defaultBlockBytes
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	return c, errors.Join(bad...)
}

// plainName refuses names that cannot pass through the driver, which takes the column
// list of an INSERT apart by itself and knows no escapes.
func plainName(name string) error {
	if i := strings.IndexFunc(name, func(r rune) bool { return r < ' ' || strings.ContainsRune("`\"'\\()", r) }); i >= 0 {
		return fmt.Errorf("name %q: %q cannot be part of a ClickHouse name here", name, name[i])
	}
	return nil
}
