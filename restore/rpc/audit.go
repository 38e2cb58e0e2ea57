package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Audit is the log of who read what. A line is written before what it tells of is
// given out; when it cannot be, nothing is. It never holds bodies, nor tokens. A nil
// Audit is none.
type Audit struct {
	mu    sync.Mutex
	path  string // empty: out is not ours to close
	out   io.Writer
	close func() error
	torn  bool // the last line was not written to its end
}

// NewAudit writes to out.
func NewAudit(out io.Writer) *Audit { return &Audit{out: out, close: func() error { return nil }} }

// OpenAudit appends to a file.
func OpenAudit(path string) (*Audit, error) {
	a := &Audit{path: path, close: func() error { return nil }}
	if err := a.Reopen(); err != nil {
		return nil, err
	}
	return a, nil
}

// Reopen opens the file anew, after it was renamed. When that is not possible the
// former one goes on to be used.
func (a *Audit) Reopen() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.path == "" {
		return nil
	}
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640) //nolint:gosec // auditors read it by their group
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	old := a.close
	a.out, a.close, a.torn = f, f.Close, false
	if info, err := f.Stat(); err == nil && info.Size() > 0 && info.Mode().IsRegular() {
		a.torn = !endsLine(a.path, info.Size())
	}
	if err := old(); err != nil {
		return fmt.Errorf("close the former audit log: %w", err)
	}
	return nil
}

// endsLine says whether a file's last byte ends a line; of one that cannot be read it
// says so too.
func endsLine(path string, size int64) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer func() { _ = f.Close() }() // it was only read
	var last [1]byte
	_, err = f.ReadAt(last[:], size-1)
	return err != nil || last[0] == '\n'
}

// Close closes the file.
func (a *Audit) Close() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.close()
	a.out, a.close = closedWriter{}, func() error { return nil }
	return err
}

type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, errors.New("it is closed") }

// entry is a line of the audit log. Numbers of 64 bits are strings.
type entry struct {
	Time          time.Time `json:"time"`
	Who           string    `json:"who"` // empty: nobody has to say
	How           string    `json:"how"` // token, jwt, certificate or none
	Peer          string    `json:"peer"`
	Method        string    `json:"method"`
	Tenant        string    `json:"tenant"`                // whom it was for; "" when that was not said
	Conversations []string  `json:"conversations"`         // those that are not UTF-8 as base64:...
	Direction     string    `json:"direction,omitempty"`   // newest, oldest, before, after or around
	Anchor        string    `json:"anchor,omitempty"`      // cursor or message ID
	MessageIDs    []string  `json:"message_ids,omitempty"` // that were asked for, or put a status on
	Status        string    `json:"status,omitempty"`      // that was put
	Limit         int       `json:"limit,omitempty"`       // as asked
	Rows          int       `json:"rows"`                  // that were given
	MinCursor     string    `json:"min_cursor,omitempty"`  // of them
	MaxCursor     string    `json:"max_cursor,omitempty"`  // of them
	State         string    `json:"state,omitempty"`       // of the answer
	Code          string    `json:"code"`                  // ok, begun, or the error's
	Incident      string    `json:"incident,omitempty"`    // under which the log has the error
}

// write appends a line in one piece.
func (a *Audit) write(e entry) error {
	if a == nil {
		return nil
	}
	if e.Conversations == nil {
		e.Conversations = []string{}
	}
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("%w: %w", errAudit, err)
	}
	b = append(b, '\n')
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.torn { // what is left of that line must not spoil this one
		b = append([]byte{'\n'}, b...)
	}
	n, err := a.out.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		a.torn = a.torn || n > 0
		return fmt.Errorf("%w: %w", errAudit, err)
	}
	a.torn = false
	return nil
}
