package adversary

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/harness"
)

// frame writes one frame of HTTP/2.
func frame(w io.Writer, kind, flags byte, stream uint32, payload []byte) error {
	b := make([]byte, 9, 9+len(payload))
	b[0], b[1], b[2], b[3], b[4] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags
	binary.BigEndian.PutUint32(b[5:], stream)
	_, err := w.Write(append(b, payload...))
	return err
}

// header writes a header without compression.
func header(b *bytes.Buffer, name, value string) {
	b.WriteByte(0)
	b.WriteByte(byte(len(name)))
	b.WriteString(name)
	b.WriteByte(byte(len(value)))
	b.WriteString(value)
}

// Callers of StreamRange who take nothing of their answers must not keep others from theirs.
func TestStreamsThatNobodyReads(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 1, Messages: 200, Seed: 91, Config: map[string]string{"fetch": "listen: 127.0.0.1:0\ndrain: 0s"}})
	conv := busiest(e)
	e.Must("archive")
	s := e.Serve()
	body := fmt.Sprintf(`{"conversation": %q}`, conv)
	ask := func() string {
		resp, err := http.Post(s.URL+"/coldtier.v1.ColdHistory/FetchRange", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
	soon := time.Now().Add(time.Minute)
	for a := ask(); !strings.Contains(a, "STATE_COMPLETE"); a = ask() {
		if time.Now().After(soon) {
			t.Fatal(a)
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := frame(conn, 4, 0, 0, []byte{0, 4, 0, 0, 0, 0}); err != nil { // no window for answers
		t.Fatal(err)
	}
	const streams = 12 // more than one conversation has places
	envelope := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
	for i := range streams {
		var h bytes.Buffer
		for _, kv := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/coldtier.v1.ColdHistory/StreamRange"}, {":authority", "x"}, {"content-type", "application/connect+json"}, {"connect-protocol-version", "1"}} {
			header(&h, kv[0], kv[1])
		}
		stream := uint32(2*i + 1)
		if err := frame(conn, 1, 4, stream, h.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := frame(conn, 0, 1, stream, envelope); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }() // the connection's own frames
	running := func() string {
		resp, err := http.Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "coldtier_rpc_running{method=\"StreamRange\"} ")
		n, _, _ := strings.Cut(rest, "\n")
		return n
	}
	end := time.Now().Add(15 * time.Second) // long before the server gives those streams up
	for running() != strconv.Itoa(streams) {
		if time.Now().After(end) {
			t.Fatalf("%s streams run, want %d", running(), streams)
		}
	}
	for { // while they read they have their places
		a := ask()
		if strings.Contains(a, "STATE_COMPLETE") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("with %s streams that nobody reads another's page is %.300s", running(), a)
		}
	}
	if n := running(); n != strconv.Itoa(streams) {
		t.Errorf("%s streams run, want %d: the page came after them", n, streams)
	}
}
