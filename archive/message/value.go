package message

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"time"
)

// Each Parse function here reads a canonical text into its typed form, and says
// ok only when the matching Append function gives the very text again.

// ParseInt reads a signed integer.
func ParseInt(text []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, false
	}
	var b [20]byte
	return n, bytes.Equal(strconv.AppendInt(b[:0], n, 10), text)
}

// ParseUint reads an unsigned integer.
func ParseUint(text []byte) (uint64, bool) {
	n, err := parseID(text)
	return n, err == nil && (len(text) == 1 || text[0] != '0')
}

const microsPerSecond = 1_000_000

// digits reads exactly len(text) decimal digits.
func digits(text []byte) (n int64, ok bool) {
	for _, d := range text {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + int64(d-'0')
	}
	return n, len(text) > 0
}

func appendPadded(dst []byte, n int64, width int) []byte {
	var b [20]byte
	t := strconv.AppendInt(b[:0], n, 10)
	for i := len(t); i < width; i++ {
		dst = append(dst, '0')
	}
	return append(dst, t...)
}

var pow10 = [...]int64{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000}

// fraction reads the ".123" of scale digits into microseconds.
func fraction(text []byte, scale int) (int64, bool) {
	if scale == 0 {
		return 0, len(text) == 0
	}
	if scale < 0 || scale > 6 || len(text) != scale+1 || text[0] != '.' {
		return 0, false
	}
	n, ok := digits(text[1:])
	return n * pow10[6-scale], ok
}

func appendFraction(dst []byte, micros int64, scale int) []byte {
	if scale <= 0 || scale > 6 {
		return dst
	}
	return appendPadded(append(dst, '.'), micros/pow10[6-scale], scale)
}

// ParseDate reads 2006-01-02 into days since 1970-01-01 (proleptic Gregorian).
func ParseDate(text []byte) (days int32, ok bool) {
	if len(text) != 10 || text[4] != '-' || text[7] != '-' {
		return 0, false
	}
	y, ok1 := digits(text[:4])
	m, ok2 := digits(text[5:7])
	d, ok3 := digits(text[8:])
	if !ok1 || !ok2 || !ok3 || m < 1 || m > 12 || d < 1 || d > 31 {
		return 0, false
	}
	t := time.Date(int(y), time.Month(m), int(d), 0, 0, 0, 0, time.UTC)
	if t.Day() != int(d) { // the 31st of a shorter month
		return 0, false
	}
	return int32(t.Unix() / 86400), y > 0 //nolint:gosec // years 1..9999; before 1970 Unix() is a whole number of days
}

// AppendDate writes days since 1970-01-01 as 2006-01-02.
func AppendDate(dst []byte, days int32) []byte {
	y, m, d := time.Unix(int64(days)*86400, 0).UTC().Date()
	dst = appendPadded(dst, int64(y), 4)
	dst = appendPadded(append(dst, '-'), int64(m), 2)
	return appendPadded(append(dst, '-'), int64(d), 2)
}

// ParseDateTime reads "2006-01-02 15:04:05.999" with scale digits of a second into
// microseconds since 1970-01-01 00:00:00.
func ParseDateTime(text []byte, scale int) (micros int64, ok bool) {
	if len(text) < 19 || text[10] != ' ' || text[13] != ':' || text[16] != ':' {
		return 0, false
	}
	days, ok1 := ParseDate(text[:10])
	h, ok2 := digits(text[11:13])
	m, ok3 := digits(text[14:16])
	s, ok4 := digits(text[17:19])
	f, ok5 := fraction(text[19:], scale)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || h > 23 || m > 59 || s > 59 {
		return 0, false
	}
	return (int64(days)*86400+h*3600+m*60+s)*microsPerSecond + f, true
}

// AppendDateTime writes microseconds since 1970-01-01 as "2006-01-02 15:04:05.999"
// with scale digits of a second.
func AppendDateTime(dst []byte, micros int64, scale int) []byte {
	day := floorDiv(micros, 86400*microsPerSecond)
	rest := micros - day*86400*microsPerSecond
	dst = AppendDate(dst, int32(day)) //nolint:gosec // years 1..9999
	sec := rest / microsPerSecond
	dst = appendPadded(append(dst, ' '), sec/3600, 2)
	dst = appendPadded(append(dst, ':'), sec/60%60, 2)
	dst = appendPadded(append(dst, ':'), sec%60, 2)
	return appendFraction(dst, rest%microsPerSecond, scale)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// ParseTime reads "-838:59:59.999" with scale digits of a second into microseconds.
func ParseTime(text []byte, scale int) (micros int64, ok bool) {
	t, neg := bytes.CutPrefix(text, []byte("-"))
	i := bytes.IndexByte(t, ':')
	if i < 2 || i > 3 || len(t) < i+6 || t[i+3] != ':' {
		return 0, false
	}
	h, ok1 := digits(t[:i])
	m, ok2 := digits(t[i+1 : i+3])
	s, ok3 := digits(t[i+4 : i+6])
	f, ok4 := fraction(t[i+6:], scale)
	if !ok1 || !ok2 || !ok3 || !ok4 || m > 59 || s > 59 {
		return 0, false
	}
	micros = (h*3600+m*60+s)*microsPerSecond + f
	if neg {
		micros = -micros
	}
	var b [24]byte
	return micros, bytes.Equal(AppendTime(b[:0], micros, scale), text)
}

// AppendTime writes microseconds as "-838:59:59.999" with scale digits of a second.
func AppendTime(dst []byte, micros int64, scale int) []byte {
	if micros < 0 {
		dst, micros = append(dst, '-'), -micros
	}
	sec := micros / microsPerSecond
	dst = appendPadded(dst, sec/3600, 2)
	dst = appendPadded(append(dst, ':'), sec/60%60, 2)
	dst = appendPadded(append(dst, ':'), sec%60, 2)
	return appendFraction(dst, micros%microsPerSecond, scale)
}

// ParseDecimal reads "-12.50" into the unscaled number -1250, given its scale 2.
// Decimals of up to 18 digits have a faster way in ParseDecimal64.
func ParseDecimal(text []byte, scale int) (*big.Int, bool) {
	point := len(text) - scale - 1
	if scale == 0 {
		point = len(text)
	}
	if point < 1 || (scale > 0 && text[point] != '.') {
		return nil, false
	}
	plain := append(append(make([]byte, 0, len(text)), text[:point]...), text[min(point+1, len(text)):]...)
	n, ok := new(big.Int).SetString(string(plain), 10)
	if !ok {
		return nil, false
	}
	return n, bytes.Equal(AppendDecimal(nil, n, scale), text)
}

// AppendDecimal writes an unscaled number with its point.
func AppendDecimal(dst []byte, n *big.Int, scale int) []byte {
	return appendPoint(dst, new(big.Int).Abs(n).String(), n.Sign() < 0, scale)
}

// appendPoint writes the digits of a number's magnitude with the point before the
// last scale of them.
func appendPoint(dst []byte, abs string, neg bool, scale int) []byte {
	if neg {
		dst = append(dst, '-')
	}
	whole := len(abs) - scale
	if whole <= 0 {
		dst = append(dst, '0')
	} else {
		dst = append(dst, abs[:whole]...)
		abs = abs[whole:]
	}
	if scale == 0 {
		return dst
	}
	dst = append(dst, '.')
	for range scale - len(abs) {
		dst = append(dst, '0')
	}
	return append(dst, abs...)
}

// ParseDecimal64 is ParseDecimal for numbers of up to 18 digits.
func ParseDecimal64(text []byte, scale int) (int64, bool) {
	if len(text) > 20 {
		return 0, false
	}
	var n int64
	t, neg := bytes.CutPrefix(text, []byte("-"))
	for _, d := range t {
		if d == '.' {
			continue
		}
		if d < '0' || d > '9' || n > math.MaxInt64/10-1 {
			return 0, false
		}
		n = n*10 + int64(d-'0')
	}
	if neg {
		n = -n
	}
	var b [24]byte
	return n, bytes.Equal(AppendDecimal64(b[:0], n, scale), text)
}

// AppendDecimal64 is AppendDecimal for numbers of up to 18 digits.
func AppendDecimal64(dst []byte, n int64, scale int) []byte {
	var b [20]byte
	abs := uint64(n) //nolint:gosec // two's complement, negated below
	if n < 0 {
		abs = -abs
	}
	return appendPoint(dst, string(strconv.AppendUint(b[:0], abs, 10)), n < 0, scale)
}

// maxFixed is MySQL's DBL_DIG: numbers whose point lies further from their first
// digit are written with an exponent.
const maxFixed = 15

// ParseDouble reads MySQL's text of a double.
func ParseDouble(text []byte) (float64, bool) {
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, false
	}
	var b [32]byte
	return x, bytes.Equal(AppendDouble(b[:0], x), text)
}

// AppendDouble writes a double as MySQL and MariaDB do (my_gcvt in their
// strings/dtoa.c): the fewest digits that read back as the same double, with an
// exponent ("1.5e-20", "1e16") only outside 1e-15 < |x| < 1e15.
func AppendDouble(dst []byte, x float64) []byte {
	var b [32]byte
	e := strconv.AppendFloat(b[:0], math.Abs(x), 'e', -1, 64) // d.ddde±xx
	mant, exp, _ := bytes.Cut(e, []byte("e"))
	exponent, _ := strconv.Atoi(string(exp))
	if math.Signbit(x) {
		dst = append(dst, '-')
	}
	if decpt := exponent + 1; x != 0 && (decpt < -maxFixed+1 || decpt > maxFixed) {
		dst = append(append(dst, mant...), 'e')
		return strconv.AppendInt(dst, int64(exponent), 10)
	}
	return strconv.AppendFloat(dst, math.Abs(x), 'f', -1, 64)
}

// ParseFloat reads MySQL's text of a single cast to a double.
func ParseFloat(text []byte) (float32, bool) {
	x, ok := ParseDouble(text)
	f := float32(x)
	return f, ok && float64(f) == x
}

// AppendFloat writes a single as MySQL does after a cast to a double.
func AppendFloat(dst []byte, f float32) []byte { return AppendDouble(dst, float64(f)) }

// ParseYear reads the four digits of a YEAR.
func ParseYear(text []byte) (uint16, bool) {
	n, ok := digits(text)
	return uint16(n), ok && len(text) == 4 //nolint:gosec // four digits
}

// AppendYear writes the four digits of a YEAR.
func AppendYear(dst []byte, y uint16) []byte { return appendPadded(dst, int64(y), 4) }
