package report

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// pair makes a signing key and the PEM of both its halves.
func pair(t testing.TB) (s *Signer, public Public) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = ParseSigner(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))); err != nil {
		t.Fatal(err)
	}
	if public, err = s.Public(); err != nil {
		t.Fatal(err)
	}
	return s, public
}

// full is a report that has something in every field.
func full() *Report {
	at := time.Date(2026, 10, 1, 6, 0, 0, 123456000, time.UTC)
	r := mrand.New(mrand.NewPCG(1, 2))
	times := func(n int, around float64) (l []time.Duration) {
		for range n {
			l = append(l, time.Duration(around*math.Exp(r.NormFloat64()*.5)*float64(time.Millisecond)))
		}
		return l
	}
	x := &Report{
		Drill: "20261001T060000Z-5f3a9c12", Source: "im", Bucket: Bucket{"cold", "im", "https://s3.eu-central-1.amazonaws.com", "0f3e8a52-6a9f-4f0e-8a3d-52b9c1f5d1aa"},
		Manifest: ManifestIdentity{"coldtier", "0f3e8a52-6a9f-4f0e-8a3d-52b9c1f5d1aa"}, Scratch: "scratch_drill_5f3a9c12",
		By: By{"coldtier", "drill-28812345-x7k2p", "v1.4.0"}, Began: at, Ended: at.Add(26*time.Minute + 12*time.Second), Seed: math.MaxUint64 - 1,
		Sample: Sample{Fraction: "1/8", Why: "Slices that no drill restored within the last year came first, then those whose last drill is longest ago; among equals the seed chose.", Rows: 9_414_210, Bytes: 2_817_450_112},
		Checks: []Check{
			{Step: StepManifest, Name: "the manifest rebuilt from the bucket equals the live one", Verdict: Pass, Compared: []Count{{"slices", 1824}, {"objects", 311_204}, {"segments", 311_204}, {"statuses", 1_203}}, Seconds: 212.4},
			{Step: StepManifest, Name: "every object of the manifest is in the bucket with its size", Verdict: Pass, Compared: []Count{{"objects listed", 313_028}}, Seconds: 61.2},
			{Step: StepRestore, Name: "the sample is restored", Verdict: Pass, Compared: []Count{{"slices", 228}, {"rows", 9_414_210}}, Expected: "9414210 rows", Found: "9414210 rows", Seconds: 492.8},
			{Step: StepCompare, Name: "fingerprints of the restored rows", Verdict: Pass, Compared: []Count{{"slices", 228}, {"chunks", 2_104}}, Seconds: 41},
			{Step: StepCompare, Name: "order and uniqueness within conversations", Verdict: Pass, Compared: []Count{{"conversations", 60_112}}, Seconds: 12.5},
			{Step: StepCompare, Name: "ClickHouse has the same rows", Verdict: Pass, Compared: []Count{{"rows", 9_414_210}}, Seconds: 38.1},
			{Step: StepCompare, Name: "bodies byte for byte", Verdict: Pass, Compared: []Count{{"bodies", 9_414_210}}, Seconds: 66.6},
			{Step: StepPointInTime, Name: "exactly the rows up to a minute come back", Verdict: Pass, Compared: []Count{{"minutes", 12}, {"rows", 311_092}}, Seconds: 55},
			{Step: StepRead, Name: "pages, healthy", Verdict: Pass, Compared: []Count{{"pages", 200}}, Seconds: 9.2},
			{Step: StepRead, Name: "pages, object store slow and cut", Verdict: Pass, Compared: []Count{{"pages", 200}}, Seconds: 48.3},
			{Step: StepCanary, Name: "canaries are there byte for byte", Verdict: Skipped, Reason: "none was planted: coldtier canary plant"},
		},
		Findings: []Finding{
			{Level: Warning, Step: StepRestore, Text: "The sample of 1/8 four times a year covers half of the slices within a year; 1/4 would cover all."},
			{Level: Info, Step: StepManifest, Text: "One slice was in flight when the manifests were compared, and was left out.", Place: &Place{What: "copying", Slice: "2026-04-02 im_03.msg_content_17", Generation: 2}},
		},
		Environment: []Server{{"manifest", "MySQL", "8.4.6", "10.0.0.5:3306"}, {"scratch", "MySQL", "8.4.6", "10.0.0.9:3306"}, {"clickhouse", "ClickHouse", "25.8.2.29", "10.0.0.7:9000"},
			{"bucket", "S3", "AmazonS3", "https://s3.eu-central-1.amazonaws.com"}, {"coldtier", "go", "go1.26.0 linux/amd64", "4 processors"}},
	}
	reason := []string{"never restored", "last restored 2025-10-01", "last restored 2026-01-01"}
	for i := range 14 {
		x.Sample.Slices = append(x.Sample.Slices, Slice{snowflake.MakeDay(2025, 4, 3).Add(i * 11), manifest.Shard{Database: fmt.Sprintf("im_%02d", i), Table: "msg_content_07"}, 1, 41_290 + uint64(i*977), 12_357_200 + int64(i)*300_000, reason[i%3], Pass})
	}
	var all []Covered
	for day := snowflake.MakeDay(2025, 4, 1); day.Before(snowflake.MakeDay(2026, 4, 1)); day = day.Next() {
		for range 5 {
			n := r.IntN(8)
			all = append(all, Covered{Day: day, Rows: 40_000, Before: n < 4, Now: n == 7})
		}
	}
	x.Sample.Coverage = Cover(at.AddDate(-1, 0, 0), all, "At 1/8 and four drills a year everything is covered every two years.")
	rec := 613 * time.Second
	x.Measures = Measures{
		Recovery: NewRecovery(rec, 9_414_210, 2_817_450_112, NewStage("manifest from the bucket", 212*time.Second, 0, 91_000_000, 1_824), NewStage("rows into the scratch database", 281*time.Second, 9_414_210, 2_817_450_112, 39_102),
			NewStage("fingerprints in SQL", 41*time.Second, 9_414_210, 0, 228), NewStage("ClickHouse compared", 38*time.Second, 9_414_210, 0, 912), NewStage("bodies compared", 41*time.Second, 9_414_210, 2_817_450_112, 39_102)),
		Traffic: []Traffic{{StoreBucket, OpGet, 81_230, 5_800_112_345}, {StoreBucket, OpList, 314, 61_000_000}, {StoreBucket, OpPut, 4, 1_200_000}, {"clickhouse", OpQuery, 1_512, 0}, {"scratch", OpQuery, 24_100, 0}},
		RecoveryPoint: RecoveryPoint{&[]time.Time{time.Date(2026, 4, 3, 23, 59, 0, 0, time.UTC)}[0], 180.25 * 86400,
			"Rows younger than archive.after (180d) are in warm alone; their recovery is that of MySQL's own backups."},
		Extrapolation: Extrapolation{Formula: "time = time to rebuild the manifest, which grows with the slices, + rows / rows a second of the sample, for one restore at a time.",
			Inputs:      []Input{{"rows a second, restored and proven", 23_478, "rows/s"}, {"manifest", 8.6, "slices/s"}, {"rows of all slices", 75_201_004, "rows"}},
			Assumptions: []string{"the target is as fast as the scratch database", "one restore at a time; several at once share the target's disk"},
			Results: []Projected{{Scope: ScopeShard, Name: "im_00.msg_content_00", Slices: 365, Rows: 15_040_200, Bytes: 4_501_200_000, Seconds: 683, Money: "0.18"},
				{Scope: ScopeAll, Name: "all shards", Slices: 1824, Rows: 75_201_004, Bytes: 22_506_110_400, Seconds: 3_415, Money: "0.91"}}},
	}
	round := func(name string, faulty bool, faults []string, healthy, slow float64) Reads {
		a, b := times(170, healthy), times(30, slow)
		for i := range b {
			b[i] = min(b[i], 796*time.Millisecond)
		}
		l := append(append([]time.Duration{}, a...), b...)
		return Reads{Name: name, Faulty: faulty, Faults: faults, BudgetMS: 800, Pages: 200, Rows: 9_120, Latency: NewLatency(l, 800*time.Millisecond), States: []ReadState{{"COMPLETE", 170, NewLatency(a, 800*time.Millisecond)}, {"PARTIAL", 30, NewLatency(b, 800*time.Millisecond)}}}
	}
	x.Measures.Reads = []Reads{round("healthy", false, nil, 38, 60), round("object store slow and cut", true, []string{"every third read is delayed by 100 ms to 2 s", "every tenth breaks off in its middle"}, 95, 700),
		round("ClickHouse away", true, []string{"each query is refused"}, 70, 210)}
	var err error
	x.Measures.Cost, err = PriceOf(Prices{"EUR", "0.00043", "0.0054", "0.0054", "0.02", "0.0245"}, x.Measures.Traffic, 22_506_110_400)
	if err != nil {
		panic(err)
	}
	for i, rate := range []float64{14_100, 15_020, 14_300, 19_980, 21_100, 22_950} {
		p := Past{Drill: fmt.Sprintf("d%d", i), Began: at.AddDate(0, -3*(6-i), 0), Verdict: Pass, Key: Key{Slices: 200 + i, Rows: 8_000_000 + uint64(i)*200_000, RecoverySeconds: 8e6 / rate, RowsPerSecond: rate,
			HealthyP99MS: 130 - float64(i)*6, FaultyP99MS: 797, RecoveryPointAgeSec: 180 * 86400, AllSeconds: 7.5e7 / rate, Coverage: math.Min(.125*float64(i+1), .5), Checks: 11, Cost: "0.16", Currency: "EUR"}}
		if i == 2 {
			p.Verdict, p.Failed = Fail, 1
		}
		x.Trend = append(x.Trend, p)
	}
	return x
}

// red is a report of a drill that found damage, with something in the fields that full
// leaves empty.
func red() *Report {
	x := full()
	x.Error = "the step read was cut off: the lease of the drill was lost"
	x.Checks[1] = Check{Step: StepManifest, Name: x.Checks[1].Name, Verdict: Fail, Reason: "2 objects are missing or have another size", Expected: "311204 objects", Found: "311203 objects, one of which has another size",
		Compared: []Count{{"objects listed", 313_027}}, Failed: 2, Failures: []Place{
			{What: "the object is not in the bucket", Object: "messages/day=2025-06-11/shard=im_03.msg_content_11/g1-9af3/conv=9007199254740993.parquet", Slice: "2025-06-11 im_03.msg_content_11", Generation: 1, Conversation: "9007199254740993"},
			{What: "the object has 40960 bytes, not 81920", Object: "messages/day=2025-07-02/shard=im_00.msg_content_00/g1-77c1/conv=42.parquet", Slice: "2025-07-02 im_00.msg_content_00", Generation: 1}}, Seconds: 61.2}
	x.Checks[3] = Check{Step: StepCompare, Name: x.Checks[3].Name, Verdict: Fail, Reason: "the rows of one chunk differ", Expected: "fingerprint 6b1f…, 5000 rows", Found: "fingerprint 9c02…, 4999 rows", Failed: 1,
		Failures: []Place{{What: "4999 rows instead of 5000", Slice: "2025-06-11 im_03.msg_content_11", Generation: 1, FromID: 1<<63 + 7, ToID: math.MaxUint64}}, Seconds: 40}
	x.Sample.Slices[3].Verdict = Fail
	x.Findings = append(x.Findings, Finding{Level: Alarm, Step: StepManifest, Text: "An object that verified copies need is lost. Its rows are still in ClickHouse: coldtier patrol --heal puts it back.", Place: &x.Checks[1].Failures[0]})
	x.Measures.Reads = x.Measures.Reads[:1]
	x.Measures.Reads[0].OverBudget, x.Measures.Reads[0].Wrong = 3, 1
	x.Measures.Cost.Note = "the requests of the read drill are counted up to where it was cut off"
	return x
}
