package harness

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/chat"
)

// Window is the range of message IDs of a day.
func (e *Env) Window(d snowflake.Day) (lo, hi uint64) {
	e.T.Helper()
	lo, hi, err := chat.Layout().Window(d, time.UTC)
	if err != nil {
		e.T.Fatal(err)
	}
	return lo, hi
}

// Slices are all slices of the manifest.
func (e *Env) Slices() []manifest.Slice {
	e.T.Helper()
	list, err := e.Store().Slices(e.T.Context(), manifest.Filter{})
	if err != nil {
		e.T.Fatal(err)
	}
	return list
}

// Keys are the keys of all objects in the bucket, with the prefix.
func (e *Env) Keys() (keys []string) {
	e.T.Helper()
	pages := s3.NewListObjectsV2Paginator(e.S3.Client(), &s3.ListObjectsV2Input{Bucket: &e.S3.Bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(e.T.Context())
		if err != nil {
			e.T.Fatal(err)
		}
		for _, o := range page.Contents {
			keys = append(keys, *o.Key)
		}
	}
	return keys
}

// Object reads an object past the product.
func (e *Env) Object(key string) []byte {
	e.T.Helper()
	out, err := e.S3.Client().GetObject(e.T.Context(), &s3.GetObjectInput{Bucket: &e.S3.Bucket, Key: &key})
	if err != nil {
		e.T.Fatal(err)
	}
	defer func() { _ = out.Body.Close() }()
	b, err := io.ReadAll(out.Body)
	if err != nil {
		e.T.Fatal(err)
	}
	return b
}

// PutObject replaces an object past the product.
func (e *Env) PutObject(key string, b []byte) {
	e.T.Helper()
	if _, err := e.S3.Client().PutObject(e.T.Context(), &s3.PutObjectInput{Bucket: &e.S3.Bucket, Key: &key, Body: bytes.NewReader(b)}); err != nil {
		e.T.Fatal(err)
	}
}

// DeleteObject deletes an object past the product.
func (e *Env) DeleteObject(key string) {
	e.T.Helper()
	if _, err := e.S3.Client().DeleteObject(e.T.Context(), &s3.DeleteObjectInput{Bucket: &e.S3.Bucket, Key: &key}); err != nil {
		e.T.Fatal(err)
	}
}

// DamageObject changes the first conversation's object and says which that is.
func (e *Env) DamageObject(change func([]byte) []byte) (key string) {
	e.T.Helper()
	keys := e.Keys()
	i := slices.IndexFunc(keys, func(k string) bool { return strings.Contains(k, "/conv=") })
	if i < 0 {
		e.T.Fatal("the bucket has no message object")
	}
	e.PutObject(keys[i], change(e.Object(keys[i])))
	return keys[i]
}

// Pages reads a conversation page by page, to the end, and gives its message IDs.
// Direction is "before", from the newest, or "after", from behind the oldest.
func (e *Env) Pages(conversation, from, direction string, limit int) (ids []string) {
	e.T.Helper()
	args := []string{"--output", "json", "fetch", "--conversation", conversation, "--from", from, "--limit", strconv.Itoa(limit)}
	next := ""
	if direction == "after" {
		next = e.oldestCursor(conversation, from)
	}
	for {
		a := args
		if next != "" {
			a = append(slices.Clone(args), "--"+direction, next)
		}
		var page struct {
			State    string
			HasMore  bool `json:"has_more"`
			Next     *string
			Messages []struct {
				ID string `json:"message_id"`
			}
		}
		r := e.Must(a...)
		r.Result(e.T, &page)
		if page.State != "COMPLETE" {
			e.T.Fatal(r)
		}
		for _, m := range page.Messages {
			ids = append(ids, m.ID)
		}
		if !page.HasMore {
			return ids
		}
		if page.Next == nil || len(page.Messages) == 0 {
			e.T.Fatalf("there is more, but no way on: %s", r)
		}
		next = *page.Next
	}
}

// oldestCursor is the cursor of a conversation's oldest message, found by paging back.
func (e *Env) oldestCursor(conversation, from string) string {
	e.T.Helper()
	next := ""
	for {
		args := []string{"--output", "json", "fetch", "--conversation", conversation, "--from", from, "--limit", "200"}
		if next != "" {
			args = append(args, "--before", next)
		}
		var page struct {
			HasMore bool    `json:"has_more"`
			Min     *string `json:"min_cursor"`
		}
		e.Must(args...).Result(e.T, &page)
		if !page.HasMore || page.Min == nil {
			if page.Min == nil {
				e.T.Fatal("the conversation is empty")
			}
			return *page.Min
		}
		next = *page.Min
	}
}
