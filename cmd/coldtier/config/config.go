package config

import (
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
)

// Config is the whole file, checked and with its defaults filled in.
type Config struct {
	Source     Source
	Manifest   Manifest
	Bucket     Bucket
	ClickHouse ClickHouse
	Archive    Archive
	Purge      Purge
	Fetch      Fetch

	// Redactor knows every secret the file holds.
	Redactor *Redactor
}

// Source says where the messages are and how to read them.
type Source struct {
	Name      string
	Zone      *time.Location // whose midnight cuts the days
	Layout    snowflake.Layout
	Databases []Database
	Tables    []string // globs within each database
	Columns   map[message.Role]string
}

// Database is one warm database.
type Database struct {
	DSN      DSN
	Replicas []DSN // watched for lag
}

// Manifest is the manifest's database.
type Manifest struct {
	DSN   DSN
	Lease time.Duration // of a slice that a worker has; it is renewed while the worker lives
}

// Bucket is the object store; credentials come from the AWS SDK's default chain.
type Bucket struct {
	Name, Prefix, Region, Endpoint string
	PathStyle                      bool
	Compatible                     bool // the store refuses checksum headers
	StorageClass, SSE, KMSKey      string
}

// ClickHouse is the row store.
type ClickHouse struct {
	Addrs    []string
	Protocol string // native or http
	Database string
	Username string
	Password Secret
	Cluster  string
	TLS      bool
}

// Archive is how slices are copied.
type Archive struct {
	After   time.Duration // a day is copied when its end is this old
	Memory  int64         // bytes
	Workers int           // 0: by the machine
	Verify  string        // full, or later: leave it to `coldtier verify`
}

// Purge is how rows leave warm.
type Purge struct {
	Lag               time.Duration // verified rows stay this long
	Strategy          string        // auto, partition or rows
	RowsPerSecond     int           // 0: no limit
	MaxReplicaLag     time.Duration
	MaxThreadsRunning int
	Hours             string // "22:00-06:00" in the source's zone; empty: always
}

// Fetch is how pages are read.
type Fetch struct{ MaxLimit int }

func defaults() Config {
	return Config{
		Source:     Source{Zone: time.UTC, Layout: snowflake.Layout{Shift: 22}},
		Manifest:   Manifest{Lease: time.Minute},
		Bucket:     Bucket{Region: "us-east-1", StorageClass: "STANDARD"},
		ClickHouse: ClickHouse{Protocol: "native", Database: "cold", Username: "default"},
		Archive:    Archive{After: 180 * day, Memory: 512 << 20, Verify: "full"},
		Purge:      Purge{Lag: 168 * time.Hour, Strategy: "auto", MaxReplicaLag: 5 * time.Second, MaxThreadsRunning: 50},
		Fetch:      Fetch{MaxLimit: 200},
	}
}
