package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/warm"
)

const day = 24 * time.Hour

var (
	errDuration = errors.New("want a duration such as 800ms, 168h or 180d")
	errSize     = errors.New("want a size such as 128KiB or 10GiB")
)

// ParseDuration reads "800ms", "168h", "180d" or "1d12h"; never negative.
func ParseDuration(s string) (time.Duration, error) {
	var days time.Duration
	rest := s
	if n, after, ok := strings.Cut(s, "d"); ok {
		d, err := strconv.ParseUint(n, 10, 32)
		if err != nil || d > uint64(math.MaxInt64/day) {
			return 0, errDuration
		}
		days, rest = time.Duration(d)*day, after
		if rest == "" {
			return days, nil
		}
	}
	if strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") || rest == "0" {
		return 0, errDuration
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > math.MaxInt64-days {
		return 0, errDuration
	}
	return days + d, nil
}

// ParseSize reads "128KiB" or "10GiB" into bytes.
func ParseSize(s string) (int64, error) {
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB", "B"} {
		n, ok := strings.CutSuffix(s, unit)
		if !ok {
			continue
		}
		shift := 10 * (i + 1)
		if unit == "B" {
			shift = 0
		}
		v, err := strconv.ParseUint(n, 10, 63)
		if err != nil || v > math.MaxInt64>>shift {
			return 0, errSize
		}
		return int64(v) << shift, nil
	}
	return 0, errSize
}

func checkGlob(s string) error {
	if s == "" {
		return errors.New("want a table name or a pattern such as msg_*")
	}
	if _, err := path.Match(s, ""); err != nil {
		return errors.New("not a pattern: want a table name with *, ? or [a-z] in it")
	}
	return nil
}

// made says whether s has min to max bytes, all of them ASCII letters, digits or
// one of also.
func made(s string, least, most int, also string) bool {
	if len(s) < least || len(s) > most {
		return false
	}
	for _, c := range []byte(s) {
		if !alphanumeric(c) && !strings.Contains(also, string(rune(c))) {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func checkName(s string) error {
	if !made(s, 1, 64, "_.-") || !alphanumeric(s[0]) {
		return errors.New("want 1 to 64 letters, digits, '_', '-' or '.'")
	}
	return nil
}

// CheckWorker checks a name that a worker is given.
func CheckWorker(s string) error { return checkName(s) }

func checkIdentifier(s string) error {
	if !made(s, 1, 64, "_") || s[0] >= '0' && s[0] <= '9' {
		return errors.New("want a plain identifier: letters, digits and '_'")
	}
	return nil
}

func checkColumn(s string) error {
	if s == "" || len(s) > 64*4 || strings.ContainsAny(s, "\x00`") {
		return errors.New("want a column's name")
	}
	return nil
}

func checkBucketName(s string) error {
	if !made(s, 3, 63, ".-") || s != strings.ToLower(s) || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return errors.New("want a bucket's name: 3 to 63 lower-case letters, digits, '-' or '.'")
	}
	return nil
}

func checkPrefix(s string) error {
	if strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") || strings.Contains(s, "//") || strings.ContainsAny(s, "\x00\r\n") {
		return errors.New("want a key prefix without slashes around it, such as im or team/im")
	}
	return nil
}

func checkEndpoint(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || (u.Path != "" && u.Path != "/") {
		// The text is not quoted: a key and secret may have been put into it.
		return errors.New("want http://HOST:PORT or https://HOST:PORT (credentials come from the environment)")
	}
	return nil
}

func checkAddr(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return errors.New("want HOST:PORT")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("want HOST:PORT with a port of 1..65535")
	}
	return nil
}

func checkHours(s string) error {
	if warm.CheckHours(s) != nil { // it quotes the text
		return errors.New("want hours such as 22:00-06:00 or 22:00-06:00,12:00-13:00, in the source's time zone")
	}
	return nil
}

func checkOneOf(all ...string) func(string) error {
	return func(s string) error {
		for _, a := range all {
			if s == a {
				return nil
			}
		}
		return fmt.Errorf("want one of: %s", strings.Join(all, ", "))
	}
}

func parseZone(s string) (*time.Location, error) {
	if s == "" || s == "Local" { // Local depends on the machine, and days must not
		return nil, errors.New("want a time zone such as UTC or Asia/Shanghai")
	}
	z, err := time.LoadLocation(s)
	if err != nil {
		return nil, errors.New("unknown time zone: want a name such as UTC or Asia/Shanghai")
	}
	return z, nil
}
