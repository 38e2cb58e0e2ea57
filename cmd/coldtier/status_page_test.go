package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// The page of a server, as a browser sees it that was given a token as the password: what
// is where, and while the manifest is away what it said last.
func TestServePage(t *testing.T) {
	t.Parallel()
	const conversation, token = "9007199254740993", "a-token-of-20-characters"
	l := newLab(t)
	l.fill("msg_00", 31, 2, 9007199254740993)
	l.want(0, "migrate")
	l.want(0, "archive")
	l.want(0, "hold", "add", "--conversation", conversation, "--reason", "a <b>case</b>")
	l.want(0, "hold", "add", "--shard", l.db+".msg_00", "--day", l.day(31).String(), "--reason", "a <b>case</b> of conversation "+conversation)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/tokens", []byte(`{"token": "`+token+`", "name": "viewer", "scopes": ["status:read"]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := l.through()
	l.config["fetch"] = map[string]any{"listen": "127.0.0.1:0", "drain": "0s", "auth": map[string]any{"tokens": dir + "/tokens"}}
	s := l.serve()
	page := func(path, password string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("me", password)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, path := range []string{"/ui", "/ui/style.css"} {
		for _, password := range []string{"", "another-token-of-20-characters"} {
			if code, body := page(path, password); code != http.StatusUnauthorized || strings.Contains(body, "im") {
				t.Errorf("%s with %q: %d %s", path, password, code, body)
			}
		}
	}
	code, body := page("/ui", token)
	for _, w := range []string{"<title>coldtier: im</title>", "msg_00", `class="m-held"`, "a &lt;b&gt;case&lt;/b&gt; of conversation …", "2 holds of any kind", l.day(31).String()} {
		if code != http.StatusOK || !strings.Contains(body, w) {
			t.Errorf("%d, without %q:\n%s", code, w, body)
		}
	}
	if strings.Contains(body, conversation) || strings.Contains(body, token) {
		t.Errorf("the page shows a conversation's ID or a token:\n%s", body)
	}
	if code, _ := page("/ui/style.css", token); code != http.StatusOK {
		t.Errorf("the style: %d", code)
	}
	proxy.Cut()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		code, body = page("/ui", token)
		if code != http.StatusOK || !strings.Contains(body, "msg_00") {
			t.Fatalf("while the manifest is away: %d %s", code, body)
		}
		if strings.Contains(body, "The manifest does not answer") && strings.Contains(body, "the last state there was") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the page never says that the manifest is away: %s", body)
		}
	}
	s.signal(t)
	if code := s.wait(t, time.Minute); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
	if strings.Contains(s.log.String(), token) {
		t.Error("the token is in the log")
	}
}
