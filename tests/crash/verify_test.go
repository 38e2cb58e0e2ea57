package crash

import (
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

var verifySteps = []string{"verify.noted", "verify.noted:3"}

// A verification that is killed goes on: what it noted is not read again in its round, what
// it had not is, and at the end all of it was read once.
func TestAKilledVerificationGoesOn(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 6, Messages: 180, Config: map[string]string{"manifest": "lease: 5s"}})
	e.Must("archive")
	type report struct {
		Equal     []struct{} `json:"equal"`
		BytesRead int64      `json:"bytes_read"`
		Elsewhere int        `json:"elsewhere"`
		Due       struct {
			Slices int
			Round  struct{ Begun string }
		}
	}
	for _, step := range verifySteps {
		if r := e.Start([]string{"COLDTIER_CRASH_AT=" + step}, "verify", "--budget", "1GiB").Wait(); r.Exit != -1 {
			t.Fatalf("it was not killed at %s: %s", step, r)
		}
	}
	var sizes struct{ Checks struct{ Bytes int64 } }
	e.Must("--output", "json", "status").Result(t, &sizes)
	// The claim of who was killed may last for its five seconds yet.
	round, slices, bytes := "", 0, int64(0)
	for {
		var r report
		res := e.Run("--output", "json", "verify", "--budget", "1GiB")
		res.Result(t, &r)
		if res.Exit != 0 && res.Exit != 5 {
			t.Fatal(res)
		}
		if round == "" {
			round = r.Due.Round.Begun
		}
		if r.Due.Round.Begun != round {
			t.Fatalf("the round ended after %d slices without the one that was claimed", slices)
		}
		slices, bytes = slices+len(r.Equal), bytes+r.BytesRead
		if r.Elsewhere == 0 {
			break
		}
	}
	// The first kill came when one slice was noted and not yet summed up, the second when
	// three more were noted and two of them summed up.
	if slices != 2 || bytes >= sizes.Checks.Bytes*2/3 || bytes == 0 {
		t.Errorf("%d slices and %d of %d bytes were read after the kills, want two slices", slices, bytes, sizes.Checks.Bytes)
	}
	var next report
	e.Must("--output", "json", "verify", "--budget", "1GiB").Result(t, &next)
	if next.Due.Round.Begun == round || len(next.Equal) != 6 {
		t.Errorf("the next round has read %d slices, begun %s", len(next.Equal), next.Due.Round.Begun)
	}
}
