package bucket_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/tests/late"
	"github.com/coldtier/coldtier/tests/stack"
)

// S9: a list that says there is more but not where, or that leads nowhere, is an
// error, not a short list and not a loop.
func TestListsThatLeadNowhere(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	page := func(token string, keys ...string) string {
		x := "<ListBucketResult><IsTruncated>true</IsTruncated>"
		if token != "" {
			x += "<NextContinuationToken>" + token + "</NextContinuationToken>"
		}
		for _, k := range keys {
			x += "<Contents><Key>" + k + "</Key><Size>1</Size></Contents>"
		}
		return x + "</ListBucketResult>"
	}
	for name, answer := range map[string]func(n int) string{
		"no token":       func(int) string { return page("", "im/a") },
		"the same token": func(int) string { return page("t") },
		"the same page":  func(n int) string { return page(fmt.Sprint(n), "im/a", "im/b") },
		"out of order":   func(n int) string { return page(fmt.Sprint(n), "im/b", "im/a") },
		"other prefix":   func(n int) string { return page(fmt.Sprint(n), "other/a") },
	} {
		n := 0
		m.before = func(w http.ResponseWriter, _ request) bool {
			n++
			_, _ = io.WriteString(w, answer(n))
			return true
		}
		err := b.List(ctx(t), "", func(bucket.Info) error { return nil })
		t.Run(name, func(t *testing.T) { is(t, err, bucket.ErrUnavailable, "list") })
		if n > 20 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// S10: what a multi-delete could not delete is said inside a 200: an error that
// names the keys, after another try where that may help.
func TestDeleteFailuresInsideA200(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	answer := func(deleted []string, errs map[string]string) string {
		x := "<DeleteResult>"
		for _, k := range deleted {
			x += "<Deleted><Key>im/" + k + "</Key></Deleted>"
		}
		for k, code := range errs {
			x += "<Error><Key>im/" + k + "</Key><Code>" + code + "</Code><Message>because</Message></Error>"
		}
		return x + "</DeleteResult>"
	}
	script := func(answers ...string) {
		n := 0
		m.before = func(w http.ResponseWriter, _ request) bool {
			if n >= len(answers) {
				return false
			}
			_, _ = io.WriteString(w, answers[n])
			n++
			return true
		}
	}
	deletes := func() []request { return m.requests(func(r request) bool { return r.has("delete") }) }

	for _, k := range []string{"a", "b", "c"} {
		put(t, b, k, k)
	}
	script(answer([]string{"a"}, map[string]string{"b": "AccessDenied", "c": "InternalError"}))
	err := b.Delete(ctx(t), "a", "b", "c")
	is(t, err, bucket.ErrDenied, "im/b", "AccessDenied")
	if strings.Contains(err.Error(), "im/a") || strings.Contains(err.Error(), "im/c") {
		t.Errorf("%v names what was deleted", err)
	}
	d := deletes()
	if len(d) != 2 || strings.Contains(string(d[1].body), "im/a") || strings.Contains(string(d[1].body), "im/b") || !strings.Contains(string(d[1].body), "im/c") {
		t.Errorf("the second of %d deletes is %s", len(d), d[len(d)-1].body)
	}
	if _, err := b.Head(ctx(t), "c"); err == nil {
		t.Error("c is there yet")
	}
	// Several refusals are one line with each key.
	script(answer(nil, map[string]string{"a": "AccessDenied", "b": "AccessDenied"}))
	is(t, b.Delete(ctx(t), "a", "b"), bucket.ErrDenied, "im/a", "im/b")
	// Missing is as good as deleted.
	script(answer(nil, map[string]string{"a": "NoSuchKey"}))
	if err := b.Delete(ctx(t), "a"); err != nil {
		t.Error(err)
	}
	// Nothing said is not deleted.
	silent := answer([]string{"a"}, nil)
	script(silent, silent, silent, silent, silent, silent)
	is(t, b.Delete(ctx(t), "a", "b"), bucket.ErrUnavailable, "im/b", "does not say")
	if got, err := b.Get(ctx(t), "b"); err != nil || string(got) != "b" {
		t.Errorf("b: %q, %v", got, err)
	}
}

// Connections that are cut, reset, slow or silent: a call gets
// through when they heal in time, and ends with its deadline when they do not.
func TestBadConnections(t *testing.T) {
	s := stack.Bucket(t)
	p := stack.NewProxy(t, strings.TrimPrefix(s.Endpoint, "http://"))
	s.Endpoint = "http://" + p.Addr
	cfg := config(s)
	cfg.RetryBase, cfg.StallTimeout = 50*time.Millisecond, time.Second
	b, _ := open(t, cfg)
	put(t, b, "k", "content")
	watch := late.New(t)
	for name, fault := range map[string]func(){"cut": p.Cut, "stalled": p.Stall, "lost answers": p.LoseAnswers, "reset": p.Reset} {
		t.Run(name, func(t *testing.T) {
			fault()
			if name != "reset" {
				start := late.Now()
				_, err := b.Get(within(t, 200*time.Millisecond), "k")
				if took := watch.Since(start); err == nil || took > 400*time.Millisecond {
					t.Errorf("a read through a broken connection: %v after %s", err, took)
				}
				time.AfterFunc(100*time.Millisecond, p.Heal)
			}
			o := bucket.PutOptions{IfNoneMatch: true}
			if err := b.Put(ctx(t), "new/"+name, strings.NewReader("content"), 7, o); err != nil {
				t.Errorf("put: %v", err)
			}
			if got, err := b.Get(ctx(t), "k"); err != nil || string(got) != "content" {
				t.Errorf("get: %q, %v", got, err)
			}
		})
	}
	p.Latency(20 * time.Millisecond)
	if got, err := b.ReadRange(ctx(t), "k", 0, 7); err != nil || string(got) != "content" {
		t.Errorf("with latency: %q, %v", got, err)
	}
}
