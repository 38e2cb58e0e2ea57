package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Checked is a report that was checked.
type Checked struct {
	Report   *Report
	SignedBy string // ID of the key
	Why      []string
}

// Verify says whether the files are a report that a trusted key signed, all of it: the
// signatures over the JSON and the page, the format, that the verdict follows from the
// checks, and that the page is that of the JSON. Files.HTML may be nil where only the JSON
// is at hand, and only when alone says so.
//
// ErrRefused: something is not as it must be, and is named. ErrUnsigned: all is right but
// that there is no signature, and the report says so itself; then Checked is given, too.
func Verify(f *Files, trusted []Public, alone bool) (*Checked, error) {
	refuse := func(format string, args ...any) (*Checked, error) {
		return nil, fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, args...))
	}
	r, err := Decode(f.JSON)
	if err != nil {
		return refuse("%s: %w", FileJSON, err)
	}
	c := &Checked{Report: r}
	_, c.Why = r.Judge()
	switch {
	case f.HTML == nil && (!alone || f.HTMLSig != nil):
		return refuse("%s is missing", FileHTML)
	case f.HTML != nil && pageOf(f.HTML) != digest(f.JSON):
		return refuse("%s is not the page of this %s: it names the SHA-256 %q, not %q", FileHTML, FileJSON, pageOf(f.HTML), digest(f.JSON))
	}
	if r.Signing == Unsigned {
		if f.JSONSig != nil || f.HTMLSig != nil {
			return refuse("%s says that it is unsigned, and yet there is a signature", FileJSON)
		}
		return c, fmt.Errorf("%w: nothing says who wrote it: set drill.signing_key", ErrUnsigned)
	}
	if f.JSONSig == nil {
		return refuse("%s%s is missing: the report says that it is signed with key %s", FileJSON, sigEnd, r.Signing)
	}
	if c.SignedBy, err = verifyFile(FileJSON, f.JSON, f.JSONSig, trusted); err != nil {
		return nil, err
	}
	if c.SignedBy != r.Signing {
		return refuse("it is signed with key %s, but says %s", c.SignedBy, r.Signing)
	}
	if f.HTML == nil {
		return c, nil
	}
	if f.HTMLSig == nil {
		return refuse("%s%s is missing", FileHTML, sigEnd)
	}
	by, err := verifyFile(FileHTML, f.HTML, f.HTMLSig, trusted)
	if err != nil {
		return nil, err
	}
	if by != c.SignedBy {
		return refuse("%s is signed with key %s, %s with key %s", FileJSON, c.SignedBy, FileHTML, by)
	}
	return c, nil
}

// Decode reads the JSON of a report, and checks that it is one.
func Decode(data []byte) (*Report, error) {
	var v struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, errors.New("it is not the JSON of a report")
	}
	if v.FormatVersion > FormatVersion {
		return nil, fmt.Errorf("it has format %d, and this coldtier knows up to %d: use a newer one", v.FormatVersion, FormatVersion)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	r := new(Report)
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("it is not the JSON of a report: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the report")
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return r, nil
}

// The page names its JSON in a meta element near its start.
const (
	pageMark = `<meta name="coldtier-report-sha256" content="`
	markFrom = 4096
)

func pageOf(html []byte) string {
	head := string(html[:min(len(html), markFrom)])
	_, rest, ok := strings.Cut(head, pageMark)
	if !ok || len(rest) < 64 {
		return ""
	}
	return rest[:64]
}
