// Package stack gives tests private corners of real servers: a database, a bucket,
// a ClickHouse database, each new for one test and removed at its end. Where the
// servers are is said by the environment, which `make test` sets:
//
//	COLDTIER_TEST_MYSQL       user:password@tcp(host:port)/          MySQL or MariaDB, all rights
//	COLDTIER_TEST_S3          http://key:secret@host:port            any S3, path style, region us-east-1
//	COLDTIER_TEST_CLICKHOUSE  native://host:port or http://host:port user default, no password
//	COLDTIER_TEST_DUCKDB      DuckDB's command line
//
// A test whose server is not named is skipped and says so. `stack run COMMAND`, in
// this folder, starts private servers and sets the variables.
//
// Tests that must kill or freeze a server start their own (StartMariaDB,
// StartVersityGW, StartClickHouse); tests that must break connections put a Proxy
// before any server.
package stack

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/go-sql-driver/mysql"
)

func env(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Skipf("%s is not set: no server to test on (`make test` starts them)", name)
	}
	return v
}

// Unique is a short name that no other test has, usable for databases and buckets.
func Unique(prefix string) string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// MySQL makes a new database on the MySQL server and gives its DSN
// "user:password@tcp(host:port)/name" without parameters.
func MySQL(t testing.TB) (dsn string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(env(t, "COLDTIER_TEST_MYSQL"))
	if err != nil {
		t.Fatalf("COLDTIER_TEST_MYSQL: %v", err)
	}
	name := Unique("t_")
	admin := OpenMySQL(t, cfg.FormatDSN())
	if _, err := admin.ExecContext(deadline(t), "CREATE DATABASE "+name+" DEFAULT CHARACTER SET utf8mb4"); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		db, err := sql.Open("mysql", cfg.FormatDSN())
		if err == nil {
			_, err = db.ExecContext(ctx, "DROP DATABASE "+name)
			_ = db.Close()
		}
		if err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	c := cfg.Clone()
	c.DBName = name
	return c.FormatDSN()
}

// OpenMySQL opens a DSN; the pool is closed at the test's end.
func OpenMySQL(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatalf("open MySQL: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// S3 is a bucket and how to reach it: path style.
type S3 struct {
	Endpoint, Region, Key, Secret, Bucket string
}

// Client is a plain SDK client for looking at the bucket past the product.
func (s S3) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint), Region: s.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.Key, s.Secret, ""),
	})
}

// Bucket makes a new bucket, removed with all it holds at the test's end.
func Bucket(t testing.TB) S3 {
	t.Helper()
	u, err := url.Parse(env(t, "COLDTIER_TEST_S3"))
	if err != nil {
		t.Fatalf("COLDTIER_TEST_S3: %v", err)
	}
	secret, _ := u.User.Password()
	s := S3{Endpoint: u.Scheme + "://" + u.Host, Region: "us-east-1", Key: u.User.Username(), Secret: secret, Bucket: Unique("t-")}
	s.create(t)
	c := s.Client()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		for {
			err := s.remove(ctx, c)
			if err == nil {
				return
			}
			// A request that the test cancelled may be carried out even now.
			var full smithy.APIError
			if !errors.As(err, &full) || full.ErrorCode() != "BucketNotEmpty" || ctx.Err() != nil {
				t.Errorf("remove bucket %s: %v", s.Bucket, err)
				return
			}
		}
	})
	return s
}

func (s S3) create(t testing.TB) {
	t.Helper()
	if _, err := s.Client().CreateBucket(deadline(t), &s3.CreateBucketInput{Bucket: &s.Bucket}); err != nil {
		t.Fatalf("create bucket %s: %v", s.Bucket, err)
	}
}

// ClickHouse is a database and how to reach it.
type ClickHouse struct {
	Addr     string // host:port
	Protocol string // "native" or "http"
	Database string
}

// Open connects past the product, to the server's default database.
func (c ClickHouse) Open(t testing.TB) clickhouse.Conn {
	t.Helper()
	o := &clickhouse.Options{Addr: []string{c.Addr}}
	if c.Protocol == "http" {
		o.Protocol = clickhouse.HTTP
	}
	conn, err := clickhouse.Open(o)
	if err != nil {
		t.Fatalf("open ClickHouse: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// NewClickHouse makes a new ClickHouse database, dropped at the test's end.
func NewClickHouse(t testing.TB) ClickHouse {
	t.Helper()
	protocol, addr, ok := strings.Cut(env(t, "COLDTIER_TEST_CLICKHOUSE"), "://")
	if !ok || (protocol != "native" && protocol != "http") {
		t.Fatalf("COLDTIER_TEST_CLICKHOUSE: want native://host:port or http://host:port")
	}
	c := ClickHouse{Addr: addr, Protocol: protocol, Database: Unique("t_")}
	conn := c.Open(t)
	if err := conn.Exec(deadline(t), "CREATE DATABASE "+c.Database); err != nil {
		t.Fatalf("create ClickHouse database %s: %v", c.Database, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Open(t).Exec(ctx, "DROP DATABASE "+c.Database); err != nil {
			t.Errorf("drop ClickHouse database %s: %v", c.Database, err)
		}
	})
	return c
}

// remove empties a bucket and deletes it.
func (s S3) remove(ctx context.Context, c *s3.Client) error {
	pages := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{Bucket: &s.Bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		var ids []types.ObjectIdentifier
		for _, o := range page.Contents {
			ids = append(ids, types.ObjectIdentifier{Key: o.Key})
		}
		if len(ids) == 0 {
			break
		}
		if _, err := c.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &s.Bucket, Delete: &types.Delete{Objects: ids}, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32}); err != nil {
			return err
		}
	}
	_, err := c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &s.Bucket})
	return err
}
