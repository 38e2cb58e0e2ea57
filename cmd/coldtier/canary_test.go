package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const createCanaryMessages = `CREATE TABLE msg_01 (msg_id BIGINT UNSIGNED NOT NULL PRIMARY KEY, session_id BIGINT UNSIGNED NOT NULL, seq BIGINT UNSIGNED NOT NULL,
	sender_id BIGINT NOT NULL, content MEDIUMTEXT CHARACTER SET utf8mb4 NULL, create_time DATETIME(3) NOT NULL, app INT NOT NULL, kept TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	size INT AS (LENGTH(content)) STORED, KEY page (session_id, seq)) ENGINE=InnoDB`

func (l *lab) canaries(code int, words ...string) {
	l.t.Helper()
	o := l.want(code, "canary", "check")
	for _, w := range words {
		if !strings.Contains(o.stdout+o.stderr, w) {
			l.t.Errorf("the check lacks %q:\n%s%s", w, o.stdout, o.stderr)
		}
	}
}

// A canary travels the whole way and is found at each stage, byte for byte; what is lost
// or changed anywhere is named.
func TestACanaryTravelsTheWholeWay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.exec(createCanaryMessages)
	l.exec("ALTER TABLE msg_00 ADD KEY page (session_id, seq)")
	l.fill("msg_00", 40, 3, 17)
	l.want(0, "migrate")
	old := l.day(40).String() + "T10:00"
	plant := func(code int, args ...string) out {
		t.Helper()
		return l.want(code, append([]string{"canary", "plant"}, args...)...)
	}
	plant(exitUsage) // no conversation
	plant(exitUsage, "--conversation", "900")
	plant(exitUsage, "--conversation", "900", "--shard", "nosuch.msg_00")
	if o := plant(exitRefused, "--conversation", "17", "--shard", l.db+".msg_00"); !strings.Contains(o.stderr, "belongs to no user") {
		t.Errorf("in a user's conversation: %s", o.stderr)
	}
	if o := plant(exitUsage, "--conversation", "901", "--shard", l.db+".msg_01"); !strings.Contains(o.stderr, "--set app=VALUE") {
		t.Errorf("without a value for app: %s", o.stderr)
	}
	l.canaries(0, "no canary was planted")
	plant(0, "--dry-run", "--conversation", "900", "--shard", l.db+".msg_00", "--at", old)
	if l.rows("msg_00") != 3 {
		t.Error("the dry run planted")
	}
	l.config["canary"] = map[string]any{"conversations": []any{map[string]any{"shard": l.db + ".msg_00", "id": "900"}, map[string]any{"shard": l.db + ".msg_01", "id": "901"}}, "set": []string{"app=7"}}
	// One table has no such column: the other is planted all the same.
	if o := plant(exitPartial, "--at", old); !strings.Contains(o.stderr, "no column app") {
		t.Errorf("a column that is not there: %s", o.stderr)
	}
	delete(l.config["canary"].(map[string]any), "set")
	l.config["canary"].(map[string]any)["conversations"] = []any{map[string]any{"shard": l.db + ".msg_00", "id": "900"}}
	plant(0, "--at", old)
	for range 2 { // once
		plant(0, "--at", old)
		plant(0, "--conversation", "901", "--shard", l.db+".msg_01", "--set", "app=7", "--at", old)
	}
	if a, b := l.rows("msg_00"), l.rows("msg_01"); a != 12 || b != 9 {
		t.Fatalf("%d and %d rows, want 12 and 9", a, b)
	}
	l.canaries(0, "2 canaries: as planted in warm 18 messages, in the bucket 0, in ClickHouse 0; 0 wrong")
	l.want(0, "archive")
	l.canaries(0, "in warm 18 messages, in the bucket 18, in ClickHouse 18; 0 wrong")
	// In the next sequence numbers of the same conversation, and not yet archived.
	plant(0, "--id", "young")
	l.canaries(0, "3 canaries: as planted in warm 27 messages, in the bucket 18, in ClickHouse 18; 0 wrong")
	var seqs int
	if err := l.warm.QueryRow("SELECT COUNT(DISTINCT seq) FROM msg_00 WHERE session_id = 900").Scan(&seqs); err != nil || seqs != 18 {
		t.Errorf("%d sequence numbers, %v", seqs, err)
	}
	l.set("purge.lag", "0s")
	l.want(0, "purge")
	l.canaries(0, "in warm 9 messages, in the bucket 18, in ClickHouse 18; 0 wrong")

	var id uint64
	if err := l.warm.QueryRow("SELECT msg_id FROM msg_00 WHERE session_id = 900 AND content IS NOT NULL ORDER BY LENGTH(content) DESC LIMIT 1").Scan(&id); err != nil {
		t.Fatal(err)
	}
	l.exec("UPDATE msg_00 SET content = CONCAT(LEFT(content, LENGTH(content) - 1), X'00') WHERE msg_id = ?", id)
	l.canaries(exitRefused, "changed", fmt.Sprint(id), "columns [content]", "in warm", "1 wrong")
	l.exec("DELETE FROM msg_00 WHERE msg_id = ?", id)
	l.canaries(exitRefused, "lost", fmt.Sprint(id), "1 wrong")
	l.exec("DELETE FROM msg_00 WHERE session_id = 900")
	l.canaries(exitRefused, "lost", "1 wrong")
	keys := l.objects("conv=901")
	if len(keys) != 1 {
		t.Fatalf("objects %v", keys)
	}
	if _, err := l.s3.Client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(l.s3.Bucket), Key: aws.String(keys[0])}); err != nil {
		t.Fatal(err)
	}
	l.canaries(exitRefused, "lost in bucket", keys[0][strings.Index(keys[0], "conv="):], "2 wrong")
	o := l.want(0, "status")
	for _, w := range []string{"canaries: 3 planted, the last young", "oldest unchecked: ", "read back whole and found equal: "} {
		if !strings.Contains(o.stdout, w) {
			t.Errorf("status lacks %q:\n%s", w, o.stdout)
		}
	}
	// What archive has checked is not due; the object that is lost is found once it is.
	var dry doc
	l.json(0, &dry, "verify", "--older-than", "1d", "--dry-run")
	if at(t, dry, "due", "checks") != nil {
		t.Errorf("due after the archive: %v", dry["due"])
	}
	if o := l.want(exitRefused, "verify", "--budget", "1GiB"); !strings.Contains(o.stdout, "conv=901.parquet rows [0, 9)") {
		t.Errorf("verify:\n%s", o.stdout)
	}
	if o := l.want(0, "status"); !strings.Contains(o.stdout, "different  "+l.day(40).String()) {
		t.Errorf("status:\n%s", o.stdout)
	}
	l.want(exitUsage, "verify", "--sample", "3/2")
	l.want(exitUsage, "verify", "--older-than", "never")
	l.want(exitUsage, "verify", "--budget", "lots")
}

// objects lists the keys that have a text in them.
func (l *lab) objects(part string) (keys []string) {
	l.t.Helper()
	list, err := l.s3.Client().ListObjectsV2(l.t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(l.s3.Bucket)})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, o := range list.Contents {
		if strings.Contains(*o.Key, part) {
			keys = append(keys, *o.Key)
		}
	}
	return keys
}
