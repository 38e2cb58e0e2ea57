package chat

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// TSV is a dump of real messages, held in memory.
type TSV struct {
	messages []Message
	rows     int
}

// RealMonth reads the dump that COLDTIER_TEST_CHAT_TSV names, as it is for rows 0,
// else copied on to that many; the test is skipped when it is not set.
func RealMonth(t testing.TB, rows int) *TSV {
	t.Helper()
	path := os.Getenv("COLDTIER_TEST_CHAT_TSV")
	if path == "" {
		t.Skip("COLDTIER_TEST_CHAT_TSV is not set: no dump of real chat")
	}
	s, err := OpenTSV(path, rows)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// maxCopies is how many machines a snowflake ID can tell apart; the dump has machine 1.
const maxCopies = 1023

// OpenTSV reads a dump: the columns of the message table in order, tab-separated,
// escaped with backslashes as LOAD DATA expects, perhaps gzipped. With rows its
// messages are repeated up to that number: each copy has the same times and its own
// machine in its IDs, its own conversations and its own people.
func OpenTSV(path string, rows int) (*TSV, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var in io.Reader = bufio.NewReader(f)
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	s := &TSV{rows: rows}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		m, err := parseLine(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		s.messages = append(s.messages, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(s.messages) == 0 {
		return nil, fmt.Errorf("%s: no messages", path)
	}
	slices.SortFunc(s.messages, func(a, b Message) int { return a.Created.Compare(b.Created) })
	if s.rows == 0 {
		s.rows = len(s.messages)
	}
	if most := maxCopies * len(s.messages); s.rows > most {
		return nil, fmt.Errorf("%s: %d rows: at most %d can be made of it", path, s.rows, most)
	}
	return s, nil
}

func parseLine(line string) (m Message, err error) {
	f := strings.Split(line, "\t")
	if len(f) != 11 {
		return m, fmt.Errorf("%d columns, want 11", len(f))
	}
	var errs []error
	number := func(i int) int64 {
		n, err := strconv.ParseInt(f[i], 10, 64)
		errs = append(errs, err)
		return n
	}
	small := func(i int) int8 {
		n, err := strconv.ParseInt(f[i], 10, 8)
		errs = append(errs, err)
		return int8(n)
	}
	m = Message{
		ID: uint64(number(0)), Conversation: number(1), Sender: number(2), ReceiverType: small(3), Receiver: number(4),
		Type: small(5), Content: unescape(f[6]), ClientID: string(unescape(f[7])), Status: small(8), Seq: uint64(number(10)),
	}
	m.Created, err = time.Parse("2006-01-02 15:04:05.000", f[9])
	return m, errors.Join(append(errs, err)...)
}

// unescape undoes the escaping of LOAD DATA.
func unescape(s string) []byte {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			switch c = s[i]; c {
			case '0':
				c = 0
			case 'b':
				c = '\b'
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'Z':
				c = 0x1a
			}
		}
		b = append(b, c)
	}
	return b
}

// Days are the days from the first message to the last.
func (s *TSV) Days() []snowflake.Day {
	first, last := snowflake.DayAt(s.messages[0].Created, time.UTC), snowflake.DayAt(s.messages[len(s.messages)-1].Created, time.UTC)
	var days []snowflake.Day
	for d := first; !last.Before(d); d = d.Next() {
		days = append(days, d)
	}
	return days
}

// Each gives the messages with their copies beside them.
func (s *TSV) Each(fn func(*Message) error) error {
	copies, more := s.rows/len(s.messages), s.rows%len(s.messages)
	for i := range s.messages {
		n := copies
		if i < more {
			n++
		}
		for k := range n {
			m := s.messages[i]
			if k > 0 {
				shift := int64(k) << 40
				group := m.Receiver == m.Conversation
				m.ID += uint64(k) << 12
				m.Conversation ^= shift
				m.Sender += shift
				if m.Receiver += shift; group {
					m.Receiver = m.Conversation
				}
				m.ClientID += "-" + strconv.Itoa(k)
			}
			if err := fn(&m); err != nil {
				return err
			}
		}
	}
	return nil
}
