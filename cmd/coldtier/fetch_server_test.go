package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A flag that was forgotten is named, and one that was given is not asked for again.
func TestFetchNamesTheFlagThatLacks(t *testing.T) {
	t.Parallel()
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"code": "unauthenticated", "message": "want a bearer token"}`))
	})
	secure, plain := httptest.NewTLSServer(refuse), httptest.NewServer(refuse)
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := file("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	token := file("token", []byte("a-token-of-twenty-bytes"))
	for name, c := range map[string]struct {
		args []string
		code int
		want string
		not  string
	}{
		"no authority":     {[]string{"--server", secure.URL}, exitUsage, "name the certificate's authority with --ca", "--token-file"},
		"no token":         {[]string{"--server", secure.URL, "--ca", ca}, exitUsage, "show one with --token-file, or --cert and --key", "with --ca"},
		"another token":    {[]string{"--server", secure.URL, "--ca", ca, "--token-file", token}, exitUsage, "want a bearer token", "show one with"},
		"TLS unlooked-for": {[]string{"--server", "http" + strings.TrimPrefix(secure.URL, "https")}, exitFailed, "try an https URL", "--ca"},
		"without TLS":      {[]string{"--server", plain.URL}, exitUsage, "show one with --token-file", "https URL"},
	} {
		got := inProcess(nil, time.Now, append([]string{"fetch", "--conversation", "c"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stderr, c.want) || strings.Contains(got.stderr, c.not) {
			t.Errorf("%s: exit code %d: %s", name, got.code, got.stderr)
		}
	}
}
