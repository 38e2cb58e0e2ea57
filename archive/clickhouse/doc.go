// Package clickhouse keeps archived messages as rows in ClickHouse.
package clickhouse
