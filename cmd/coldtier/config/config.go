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
	Prices     Costs
	Fetch      Fetch
	Drill      Drill
	Canary     Canary
	Schedule   Schedule
	Metrics    Metrics
	Traces     Traces

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
	Quota                          int64 // bytes that it may hold; 0: no limit. status says when they will be reached
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
	// PerServer is how many slices of one MySQL server are scanned at once, by all workers
	// of the fleet; 0: no limit.
	PerServer int
	Verify    string // full, or later: leave it to `coldtier verify`
	Pace
}

// Purge is how rows leave warm.
type Purge struct {
	Lag      time.Duration // verified rows stay this long
	Strategy string        // auto, partition or rows
	Approval string        // none, or required: a purge does a plan that a second person approved
	Pace
}

// Fetch is how pages are read and served.
type Fetch struct {
	Listen      string        // HOST:PORT
	Budget      time.Duration // within which a page is answered
	HedgeAfter  time.Duration // the bucket is asked too when ClickHouse has not answered after this
	FillTimeout time.Duration // how long what a page left out is still read in the background
	Cache       int64         // bytes
	MaxLimit    int           // messages of a page
	Warm        bool          // pages go on into the warm tables
	Limits      Limits
	TLS         TLS
	Auth        Auth
	Audit       string        // file of the audit log; "-" is stdout, empty is none
	Drain       time.Duration // how long a server that ends still takes requests, for load balancers to turn away
}

// Limits are how many requests are worked on at the same time.
type Limits struct{ Process, Tenant, Conversation int }

// TLS is the server's certificate and the authority of its callers': files in PEM.
type TLS struct{ Cert, Key, ClientCA string }

// Auth says who may call. With all of it empty, and no TLS.ClientCA, anybody may.
type Auth struct {
	Clients           []string // names of certificates; empty: any that TLS.ClientCA signed
	Tokens            string   // file of tokens
	JWT               JWT
	InsecureTransport bool // tokens are taken without TLS: a proxy before the server ends it
}

// JWT says whose tokens are taken.
type JWT struct {
	Issuer, Audience string
	JWKS             string // the issuer's keys: a file or an https URL
}

func defaults() Config {
	return Config{
		Source:     Source{Zone: time.UTC, Layout: snowflake.Layout{Shift: 22}},
		Manifest:   Manifest{Lease: time.Minute},
		Bucket:     Bucket{Region: "us-east-1", StorageClass: "STANDARD"},
		ClickHouse: ClickHouse{Protocol: "native", Database: "cold", Username: "default"},
		Archive:    Archive{After: 180 * day, Memory: 512 << 20, PerServer: 4, Verify: "full", Pace: archivePace()},
		Purge:      Purge{Lag: 168 * time.Hour, Strategy: "auto", Approval: "none", Pace: purgePace()},
		Fetch: Fetch{
			Listen: "127.0.0.1:8080", Budget: 800 * time.Millisecond, HedgeAfter: 150 * time.Millisecond, FillTimeout: 10 * time.Second,
			Cache: 256 << 20, MaxLimit: 200, Limits: Limits{Process: 256, Tenant: 64, Conversation: 8}, Drain: 5 * time.Second,
		},
		Prices:   Costs{Currency: "USD"},
		Schedule: defaultSchedule(),
		Drill:    Drill{Sample: Fraction{1, 8}, ReportDir: "drills", ReadPages: 200, MaxAge: 100 * day, Prices: Prices{Currency: "USD"}},
		Metrics:  Metrics{Skew: 3},
		Traces:   Traces{Sample: 1},
	}
}
