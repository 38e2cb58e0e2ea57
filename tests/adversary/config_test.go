package adversary

import (
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

// Another time zone would cut days that overlap those that are archived, or leave
// hours between them that nobody archives.
func TestChangedZoneIsRefused(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 2, Messages: 200, Seed: 73})
	e.Must("archive", "--to", e.Days[0].String())
	for _, zone := range []string{"Asia/Shanghai", "America/New_York"} {
		e.Change(func(o *harness.Options) { o.Config = map[string]string{"source": "timezone: " + zone} })
		e.Expect(4, []string{"timezone", e.Days[0].String()}, "archive")
	}
	e.Change(func(o *harness.Options) { o.Config = nil })
	gone(e, e.Truth())
}
