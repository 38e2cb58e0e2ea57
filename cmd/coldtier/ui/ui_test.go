package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/cmd/coldtier/status/statustest"
	"github.com/coldtier/coldtier/manifest"
)

// clock is one that is set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func newPage(t *testing.T, gather func(context.Context) (*status.Report, error)) (*Page, *clock) {
	t.Helper()
	c := &clock{t: statustest.Now()}
	p, err := New(Config{Gather: gather, Redact: func(s string) string { return strings.ReplaceAll(s, "secret", "***") }, Now: c.now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, c
}

func sample(context.Context) (*status.Report, error) { return statustest.Sample(), nil }

func get(p http.Handler, path string) (int, http.Header, string) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Header(), w.Body.String()
}

// find gives the elements of a name and class.
func find(n *html.Node, name, class string) (all []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && (name == "" || d.Data == name) && (class == "" || strings.Contains(" "+attr(d, "class")+" ", " "+class+" ")) {
			all = append(all, d)
		}
	}
	return all
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func parse(t *testing.T, body string) *html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// The page has all of the report, and nothing that somebody wrote becomes markup.
func TestPage(t *testing.T) {
	t.Parallel()
	p, _ := newPage(t, sample)
	code, head, body := get(p, "/ui")
	if code != http.StatusOK || head.Get("Content-Type") != "text/html; charset=utf-8" || head.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", code, head)
	}
	doc := parse(t, body)
	text := textOf(doc)
	for _, w := range []string{"Needs attention", "2 slices failed", "im_10.msg_content_29", "669 of 1,024 slices", "about 39m", "the replica im-db-03b:3306 is 12s behind", "until it is lifted",
		"902 slices", "p7f3a19c02", "litigation 2026-118", "406,976 of 408,000 slices", "2026-10-01 03:04:05Z", "16 canaries are planted", "19 TiB", "10.2×", "902 slices were left: its time", "and 0 tables more"} {
		if strings.Contains(text, w) == (w == "and 0 tables more") {
			t.Errorf("%q: %t", w, !strings.Contains(text, w))
		}
	}
	if n := strings.Count(text, statustest.Script); n < 3 { // attention, stop, error
		t.Errorf("a reason's markup is there %d times as text", n)
	}
	if n := len(find(doc, "script", "")) + len(find(doc, "style", "")) + len(find(doc, "iframe", "")) + len(find(doc, "form", "")); n > 0 {
		t.Errorf("%d elements that the page must not have", n)
	}
	for n := range doc.Descendants() {
		for _, a := range n.Attr {
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") || (a.Key == "href" || a.Key == "src") && !strings.HasPrefix(a.Val, "/ui") {
				t.Errorf("attribute %s=%q", a.Key, a.Val)
			}
		}
	}
	if strings.Contains(body, statustest.Conversation) {
		t.Error("it shows the ID of a conversation")
	}
	cells := find(doc, "td", "m-failed")
	if len(cells) != 2 || !strings.HasPrefix(attr(cells[1], "title"), "Sat 2026-02-14: failed in part; of 1,024 slices 1 committed, 1023 purged") && !strings.HasPrefix(attr(cells[0], "title"), "Sat 2026-02-14: failed in part; of 1,024 slices 1 committed, 1023 purged") {
		t.Errorf("%d cells of failed days, %q", len(cells), attr(cells[0], "title"))
	}
	if n := len(find(doc, "table", "calendar")); n != 1 {
		t.Errorf("%d calendars", n)
	}
	for _, x := range find(doc, "td", "") {
		if strings.HasPrefix(attr(x, "class"), "m-") && (textOf(x) == "" || attr(x, "title") == "") {
			t.Errorf("a cell without letter or title: %v", x.Attr)
		}
	}
	_, _, all := get(p, "/ui?years=all&refresh=10")
	whole := parse(t, all)
	if n := len(find(whole, "table", "calendar")); n != 2 {
		t.Errorf("%d calendars of all years", n)
	}
	if m := find(whole, "meta", ""); !strings.Contains(all, `<meta http-equiv="refresh" content="10">`) || len(m) != 5 {
		t.Errorf("refresh: %d metas", len(m))
	}
	if n := len(find(whole, "td", "")) - len(find(doc, "td", "")); n < 28 {
		t.Errorf("all years have %d cells more", n)
	}
}

// What a browser may do with the page is as little as it needs.
func TestHeaders(t *testing.T) {
	t.Parallel()
	p, _ := newPage(t, sample)
	for _, path := range []string{"/ui", "/ui/style.css", "/ui/none"} {
		_, h, _ := get(p, path)
		if h.Get("Content-Security-Policy") != "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, h)
		}
	}
	for path, want := range map[string]int{"/ui": 200, "/ui/style.css": 200, "/ui/none": 404, "/ui/": 404, "/ui?refresh=x": 200, "/ui?refresh=-1": 200} {
		if code, _, _ := get(p, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ui", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %d", w.Code)
	}
	if _, _, body := get(p, "/ui?refresh=1"); !strings.Contains(body, `content="5"`) {
		t.Error("a refresh each second is granted")
	}
}

// IDs of conversations and senders are taken out of whatever quotes them, and the rest is
// kept.
func TestClean(t *testing.T) {
	t.Parallel()
	const id = statustest.Conversation
	for _, s := range []string{
		"object im/messages/day=2026-02-14/shard=im_02.t/g1-7f/conv=" + id + ".parquet: SHA-256 differs", "conversation \"" + id + "\" has 3 rows", "conversation " + id + " differs",
		"Conversation: " + id, "archive --conversation=" + id + " --shard x", "export --conversation " + id, "conversations [" + id + "]", "spans of conversation '" + id + "'", "conversation ID " + id,
		"conversation ID \"a " + id + "\": want an integer", "sender " + id + " is held", "conversation \"a\\\"" + id + "\" differs", "message 7 of conversation \"" + id + "\" comes after message 8 of conversation \"" + id + "\"",
		"conv_id=" + id, "session_id: " + id, "conversation = " + id, "tables of conversation " + id + ": no",
	} {
		if got := clean(s); strings.Contains(got, id) || strings.Contains(got, id[4:]) {
			t.Errorf("%q becomes %q", s, got)
		}
	}
	for s, want := range map[string]string{
		"the replica db:3306 is 12s behind, more than 5s": "the replica db:3306 is 12s behind, more than 5s",
		"902 slices were left: its time was up":           "902 slices were left: its time was up",
		"a\x1b[31mb\nc\u202ed":                            "a [31mb c d",
		"object a/conv=1.parquet: SHA-256 differs":        "object a/conv=…: SHA-256 differs",
	} {
		if got := clean(s); got != want {
			t.Errorf("%q becomes %q, want %q", s, got, want)
		}
	}
	if n := len([]rune(clean(strings.Repeat("é", 5000)))); n != maxText {
		t.Errorf("a long text becomes %d characters", n)
	}
}

// A hundred viewers at once cost one question, and those of the next seconds none.
func TestOneQuestionForAll(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	p, c := newPage(t, func(context.Context) (*status.Report, error) { asked.Add(1); return statustest.Sample(), nil })
	many := func() {
		var g sync.WaitGroup
		for range 20 {
			g.Go(func() {
				if code, _, _ := get(p, "/ui"); code != http.StatusOK {
					t.Errorf("a viewer gets %d", code)
				}
			})
		}
		g.Wait()
	}
	for want := int32(1); want < 4; want++ {
		many()
		many()
		if n := asked.Load(); n != want {
			t.Fatalf("asked %d times, want %d", n, want)
		}
		c.add(fresh)
	}
}

// While the manifest is away the page shows what it said last, how old that is and since
// when it is away, without secrets; before there was anything it says so with 503.
func TestManifestAway(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	bad.Store(true)
	p, c := newPage(t, func(context.Context) (*status.Report, error) {
		if bad.Load() {
			return nil, errors.New("connect to the manifest: secret <b>refused</b>")
		}
		return statustest.Sample(), nil
	})
	says := func(want int, words ...string) {
		t.Helper()
		code, _, body := get(p, "/ui")
		text := textOf(parse(t, body))
		if code != want {
			t.Errorf("%d, want %d", code, want)
		}
		for _, w := range words {
			if not, ok := strings.CutPrefix(w, "!"); strings.Contains(text, strings.TrimPrefix(w, "!")) == ok {
				t.Errorf("%q is there: %t\n%.400s", not, ok, text)
			}
		}
	}
	says(http.StatusServiceUnavailable, "The manifest does not answer", "<b>refused</b>", "no state yet", "!secret", "!Calendar")
	bad.Store(false)
	c.add(fresh)
	says(http.StatusOK, "!does not answer", "Calendar")
	bad.Store(true)
	c.add(time.Minute)
	says(http.StatusOK, "The manifest does not answer", "For 0s", "the last state there was, 1m old", "Calendar")
	c.add(90 * time.Second)
	says(http.StatusOK, "For 1m30s", "2m30s old")
	bad.Store(false)
	c.add(fresh)
	says(http.StatusOK, "!does not answer", "Calendar")
}

// One that does not answer at all holds up nobody for long, and is not asked twice at once.
func TestManifestHangs(t *testing.T) {
	t.Parallel()
	var asked, ended atomic.Int32
	p, c := newPage(t, func(ctx context.Context) (*status.Report, error) {
		if asked.Add(1) == 1 {
			return statustest.Sample(), nil
		}
		<-ctx.Done()
		ended.Add(1)
		return nil, ctx.Err()
	})
	get(p, "/ui")
	for n := range 2 {
		c.add(time.Minute)
		if code, _, body := get(p, "/ui"); code != http.StatusOK || !strings.Contains(body, fmt.Sprintf("(%dm ago)", n+1)) {
			t.Errorf("%d %.600s", code, body)
		}
	}
	if a, e := asked.Load(), ended.Load(); a != 2 || e != 0 {
		t.Errorf("asked %d times, and waited for the end of %d", a, e)
	}
	_ = p.Close()
	if e := ended.Load(); e != 1 {
		t.Error("the page is closed, and what it asked for goes on")
	}
}

// Before the first archive there is a page, too.
func TestEmpty(t *testing.T) {
	t.Parallel()
	p, _ := newPage(t, func(context.Context) (*status.Report, error) {
		r := &status.Report{Source: "im", Now: statustest.Now(), Drill: &status.Drill{Overdue: true}, Canaries: &status.Canaries{}}
		r.Checks, r.Growth = &manifest.Coverage{}, &manifest.Forecast{}
		r.Attend()
		return r, nil
	})
	code, _, body := get(p, "/ui")
	if text := textOf(parse(t, body)); code != http.StatusOK || !strings.Contains(text, "No slices yet") || !strings.Contains(text, "No drill has found everything right so far") || !strings.HasSuffix(strings.TrimSpace(body), "</html>") {
		t.Errorf("%d %s", code, text)
	}
}

// Text is read on its background in both schemes: 4.5 to 1, as WCAG's AA wants it.
func TestContrast(t *testing.T) {
	t.Parallel()
	light, dark, ok := strings.Cut(string(styleText), "prefers-color-scheme: dark")
	if !ok {
		t.Fatal("there is no dark scheme")
	}
	dark, _, _ = strings.Cut(dark, "* { box-sizing")
	colour := regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{3,6})\b`)
	for name, css := range map[string]string{"light": light, "dark": dark} {
		of := map[string]float64{}
		for _, m := range colour.FindAllStringSubmatch(css, -1) {
			of[m[1]] = luminance(t, m[2])
		}
		pairs := [][2]string{{"ink", "bg"}, {"ink", "card"}, {"soft", "bg"}, {"soft", "card"}, {"link", "bg"}, {"link", "card"}, {"good", "goodbg"}, {"bad", "badbg"}, {"bad", "card"},
			{"warn", "warnbg"}, {"warn", "card"}, {"now", "nowbg"}, {"ink", "badbg"}}
		for _, m := range status.Marks() {
			pairs = append(pairs, [2]string{string(m) + "-ink", string(m)})
		}
		for _, p := range pairs {
			a, okA := of[p[0]]
			b, okB := of[p[1]]
			if ratio := (max(a, b) + .05) / (min(a, b) + .05); !okA || !okB || ratio < 4.5 {
				t.Errorf("%s: --%s on --%s has a contrast of %.2f", name, p[0], p[1], ratio)
			}
		}
	}
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	l := 0.0
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= .04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+.055)/1.055, 2.4)
		}
		l += weight * c
	}
	return l
}

// In a browser the page is drawn in both schemes and on a phone. With COLDTIER_SCREENSHOTS
// the pictures are kept in that folder, to be looked at.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium")
	}
	p, _ := newPage(t, sample)
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	dir := os.Getenv("COLDTIER_SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	for name, c := range map[string]struct {
		width, height int
		dark          bool
	}{"light": {1280, 3400, false}, "dark": {1280, 3400, true}, "phone": {360, 5600, false}} {
		path := filepath.Join(dir, name+".png")
		args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(), "--virtual-time-budget=3000",
			fmt.Sprintf("--window-size=%d,%d", c.width, c.height), "--screenshot=" + path}
		if c.dark {
			args = append(args, "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		out, err := exec.CommandContext(ctx, browser, append(args, srv.URL+"/ui")...).CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if strings.Contains(string(out), "Content Security Policy") {
			t.Errorf("%s: the page breaks its own policy:\n%s", name, out)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, f)
		_ = f.Close()
		if err != nil || n < 20_000 { // a blank page has a few thousand bytes
			t.Errorf("%s: a picture of %d bytes, %v", name, n, err)
		}
	}
}
