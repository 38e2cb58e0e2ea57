package report

import (
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// FormatVersion is the version of the JSON that this package writes.
const FormatVersion = 1

// Verdict says how something ended.
type Verdict string

// The verdicts. Only a check can be skipped.
const (
	Pass    Verdict = "pass"
	Fail    Verdict = "fail"
	Skipped Verdict = "skipped"
)

// The steps of a drill.
const (
	StepManifest    = "manifest"      // the manifest, rebuilt from the bucket alone, against the live one; the bucket's listing
	StepRestore     = "restore"       // the sample into the scratch database
	StepCompare     = "compare"       // fingerprints, counts, order, ClickHouse, bodies
	StepPointInTime = "point_in_time" // rows up to random minutes
	StepRead        = "read"          // pages within the budget, healthy and with faults
	StepMeasure     = "measure"
	StepCanary      = "canary"
)

// Required are the steps without which no drill is green.
func Required() []string {
	return []string{StepManifest, StepRestore, StepCompare, StepPointInTime, StepRead}
}

// Report is what a drill did and found. Row counts and sizes are JSON numbers below 2^53;
// IDs and the seed, which may be larger, are strings. Times are UTC.
type Report struct {
	FormatVersion int              `json:"format_version"`
	Drill         string           `json:"drill"` // the drill's ID
	Source        string           `json:"source"`
	Bucket        Bucket           `json:"bucket"`
	Manifest      ManifestIdentity `json:"manifest"`
	Scratch       string           `json:"scratch"` // the scratch database's name
	By            By               `json:"by"`
	Began         time.Time        `json:"began"` // by the manifest database's clock
	Ended         time.Time        `json:"ended"`
	Seed          uint64           `json:"seed,string"`
	Verdict       Verdict          `json:"verdict"`
	// Error is what ended the drill before its end; then the verdict is fail.
	Error string `json:"error,omitempty"`
	// Signing is "unsigned", or the ID of the key that the report is signed with. Seal sets it.
	Signing     string    `json:"signing"`
	Sample      Sample    `json:"sample"`
	Checks      []Check   `json:"checks"`
	Findings    []Finding `json:"findings"`
	Measures    Measures  `json:"measures"`
	Environment []Server  `json:"environment"`
	Trend       []Past    `json:"trend"` // earlier drills, oldest first, without this one
}

// Bucket names the bucket that was drilled.
type Bucket struct {
	Name     string `json:"name"`
	Prefix   string `json:"prefix"`
	Endpoint string `json:"endpoint,omitempty"`
	Owner    string `json:"owner"` // the identity in the bucket's owner mark
}

// ManifestIdentity names the live manifest.
type ManifestIdentity struct {
	Database string `json:"database"`
	Identity string `json:"identity"`
}

// By says who ran a drill, where and with what.
type By struct {
	User    string `json:"user"`
	Host    string `json:"host"`
	Version string `json:"version"` // of coldtier
}

// Sample says which slices were restored and why.
type Sample struct {
	Fraction string   `json:"fraction"` // "1/8"
	Why      string   `json:"why"`      // how slices were chosen, in words
	Slices   []Slice  `json:"slices"`
	Rows     uint64   `json:"rows"`
	Bytes    int64    `json:"bytes"` // of their objects
	Coverage Coverage `json:"coverage"`
}

// Slice is a slice that was restored.
type Slice struct {
	Day        snowflake.Day  `json:"day"`
	Shard      manifest.Shard `json:"shard"`
	Generation uint32         `json:"generation"`
	Rows       uint64         `json:"rows"`
	Bytes      int64          `json:"bytes"`
	Why        string         `json:"why"`     // "never restored", "last restored 2025-07-01", ...
	Verdict    Verdict        `json:"verdict"` // pass: restored and found equal
}

// Coverage says how much was restored in drills since an instant, this one included.
// See Cover.
type Coverage struct {
	Since    time.Time `json:"since"`
	Slices   int       `json:"slices"`  // all there are
	Before   int       `json:"before"`  // restored in earlier drills since then
	Covered  int       `json:"covered"` // with this one
	Rows     uint64    `json:"rows"`
	RowsDone uint64    `json:"rows_covered"`
	Months   []Month   `json:"months"` // by the slices' days
	// Note says in words when everything is covered at this fraction and rhythm.
	Note string `json:"note"`
}

// Month is the coverage of the slices of one month.
type Month struct {
	Month   string `json:"month"` // "2026-05"
	Slices  int    `json:"slices"`
	Before  int    `json:"before"`
	Covered int    `json:"covered"`
}

// Check is one thing that was looked at.
type Check struct {
	Step     string  `json:"step"`
	Name     string  `json:"name"` // unique within the step
	Verdict  Verdict `json:"verdict"`
	Reason   string  `json:"reason,omitempty"` // why it was skipped, or in one sentence why it failed
	Expected string  `json:"expected,omitempty"`
	Found    string  `json:"found,omitempty"`
	Compared []Count `json:"compared,omitempty"` // what was compared, and how much of it
	Failures []Place `json:"failures,omitempty"` // where it failed: the first of them
	Failed   int     `json:"failed,omitempty"`   // how many places there were, those left out of Failures included
	Seconds  float64 `json:"seconds"`
}

// Count is how many of something.
type Count struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
}

// Place names where something is wrong, as exactly as it is known.
type Place struct {
	What         string `json:"what"`             // what is wrong, in one sentence
	Object       string `json:"object,omitempty"` // key in the bucket
	Slice        string `json:"slice,omitempty"`  // manifest.SliceKey.String
	Generation   uint32 `json:"generation,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	FromID       uint64 `json:"from_id,string,omitempty"`
	ToID         uint64 `json:"to_id,string,omitempty"` // the message IDs [FromID, ToID)
}

// Level says how bad a finding is.
type Level string

// The levels.
const (
	Info    Level = "info"
	Warning Level = "warning"
	Alarm   Level = "alarm"
)

// Finding is something that the reader should know beside the verdicts.
type Finding struct {
	Level Level  `json:"level"`
	Step  string `json:"step"`
	Text  string `json:"text"`
	Place *Place `json:"place,omitempty"`
}

// Measures are what was measured.
type Measures struct {
	Recovery      Recovery      `json:"recovery"`
	Traffic       []Traffic     `json:"traffic"`
	Reads         []Reads       `json:"reads"`
	RecoveryPoint RecoveryPoint `json:"recovery_point"`
	Extrapolation Extrapolation `json:"extrapolation"`
	Cost          Cost          `json:"cost"`
}

// Recovery is how long getting the sample back took, verification included.
type Recovery struct {
	Seconds        float64 `json:"seconds"` // from the empty scratch database to rows that are proven equal
	Rows           uint64  `json:"rows"`
	Bytes          int64   `json:"bytes"`
	RowsPerSecond  float64 `json:"rows_per_second"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	Stages         []Stage `json:"stages"`
}

// Stage is a part of a recovery. See NewStage.
type Stage struct {
	Name           string  `json:"name"`
	Seconds        float64 `json:"seconds"`
	Rows           uint64  `json:"rows"`
	Bytes          int64   `json:"bytes"`
	Requests       int64   `json:"requests"`
	RowsPerSecond  float64 `json:"rows_per_second"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Operation is a kind of request, as it is priced.
type Operation string

// The operations.
const (
	OpGet   Operation = "get"
	OpPut   Operation = "put"
	OpList  Operation = "list"
	OpQuery Operation = "query" // of a database; without a price
)

// Traffic is what was asked of one store.
type Traffic struct {
	Store     string    `json:"store"` // "bucket", "clickhouse", "scratch", "manifest"
	Operation Operation `json:"operation"`
	Requests  int64     `json:"requests"`
	Bytes     int64     `json:"bytes"`
}

// StoreBucket is the store whose traffic has prices.
const StoreBucket = "bucket"

// Reads is one round of the read drill.
type Reads struct {
	Name       string      `json:"name"`   // "healthy", "object store slow and cut", "ClickHouse away"
	Faulty     bool        `json:"faulty"` // faults were injected
	Faults     []string    `json:"faults"` // which, in words
	BudgetMS   float64     `json:"budget_ms"`
	Pages      int         `json:"pages"`
	Rows       uint64      `json:"rows"`
	OverBudget int         `json:"over_budget"`
	Wrong      int         `json:"wrong"`   // pages that differ from the restored truth
	Latency    Latency     `json:"latency"` // of all pages
	States     []ReadState `json:"states"`
}

// ReadState are the pages of a round that were answered with one state.
type ReadState struct {
	State   string  `json:"state"` // COMPLETE, PARTIAL, PENDING, ...
	Pages   int     `json:"pages"`
	Latency Latency `json:"latency"`
}

// Latency is a distribution of times in milliseconds. See NewLatency.
type Latency struct {
	Count   int            `json:"count"`
	MinMS   float64        `json:"min_ms"`
	MeanMS  float64        `json:"mean_ms"`
	P50MS   float64        `json:"p50_ms"`
	P90MS   float64        `json:"p90_ms"`
	P95MS   float64        `json:"p95_ms"`
	P99MS   float64        `json:"p99_ms"`
	MaxMS   float64        `json:"max_ms"`
	Buckets []LatencyCount `json:"buckets"`
}

// LatencyCount is a bar of a histogram: how many took longer than the bar before, up to UpToMS.
type LatencyCount struct {
	UpToMS float64 `json:"up_to_ms"`
	Count  int     `json:"count"`
}

// RecoveryPoint is up to when everything is in the cold tier.
type RecoveryPoint struct {
	NewestMinute *time.Time `json:"newest_minute,omitempty"` // the newest archived minute; nil: nothing is archived
	AgeSeconds   float64    `json:"age_seconds"`             // of it, when the drill began
	Note         string     `json:"note"`                    // what newer rows depend on
}

// Extrapolation is what the measures say of more than the sample, and how.
type Extrapolation struct {
	Formula     string      `json:"formula"` // in words
	Inputs      []Input     `json:"inputs"`
	Assumptions []string    `json:"assumptions"`
	Results     []Projected `json:"results"`
}

// Input is a number of the model.
type Input struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Scope is what a projection is of.
type Scope string

// The scopes.
const (
	ScopeShard Scope = "shard"
	ScopeAll   Scope = "all"
)

// Projected is the recovery of a scope by the model.
type Projected struct {
	Scope   Scope   `json:"scope"`
	Name    string  `json:"name"` // of the shard, the largest one; or "all shards"
	Slices  int     `json:"slices"`
	Rows    uint64  `json:"rows"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Money   string  `json:"money,omitempty"` // by the price table; a decimal number
}

// Cost is what the drill cost by the price table of the configuration. See PriceOf.
type Cost struct {
	Currency string     `json:"currency"`
	Items    []CostItem `json:"items"`
	Total    string     `json:"total"`             // a decimal number, as all money here
	Monthly  *CostItem  `json:"monthly,omitempty"` // what keeping all objects costs; not in Total
	Note     string     `json:"note,omitempty"`
}

// CostItem is a line of a cost.
type CostItem struct {
	What      string  `json:"what"`
	Quantity  float64 `json:"quantity"`
	Unit      string  `json:"unit"`
	UnitPrice string  `json:"unit_price"`
	Money     string  `json:"money"`
}

// Server is a server that took part.
type Server struct {
	Role    string `json:"role"` // manifest, warm, scratch, clickhouse, bucket, coldtier
	Kind    string `json:"kind"` // MariaDB, MySQL, ClickHouse, S3, go
	Version string `json:"version"`
	Where   string `json:"where,omitempty"` // without secrets
}

// Past is an earlier drill, for the trend.
type Past struct {
	Drill   string    `json:"drill"`
	Began   time.Time `json:"began"`
	Verdict Verdict   `json:"verdict"`
	Key
}

// Key are the few measures that are kept in the manifest and followed from drill to drill.
type Key struct {
	Slices              int     `json:"slices"`
	Rows                uint64  `json:"rows"`
	RecoverySeconds     float64 `json:"recovery_seconds"`
	RowsPerSecond       float64 `json:"rows_per_second"`
	HealthyP99MS        float64 `json:"healthy_p99_ms"` // 0: no pages were read
	FaultyP99MS         float64 `json:"faulty_p99_ms"`
	RecoveryPointAgeSec float64 `json:"recovery_point_age_seconds"`
	AllSeconds          float64 `json:"all_seconds"` // the recovery of everything, extrapolated
	Coverage            float64 `json:"coverage"`    // of the slices since a year, 0 to 1
	Checks              int     `json:"checks"`      // that were made: passed or failed
	Failed              int     `json:"failed"`
	Cost                string  `json:"cost,omitempty"`
	Currency            string  `json:"currency,omitempty"`
}
