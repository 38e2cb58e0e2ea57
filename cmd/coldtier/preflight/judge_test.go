package preflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

func preflight(role Role) *Preflight {
	c := &config.Config{}
	c.Purge.MaxReplicaLag = 5 * time.Second
	c.Purge.Lag, c.Manifest.Lease = 168*time.Hour, time.Minute
	c.Archive.Memory = 512 << 20
	return New(c, role, time.Now)
}

// grants are the GRANT statements of a role's files, as SHOW GRANTS would tell them.
func grants(t *testing.T, role Role) (lines []string) {
	t.Helper()
	files, err := filepath.Glob("../../../deploy/sql/*/" + string(role) + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(file)) {
			if line = strings.TrimSuffix(strings.TrimSpace(line), ";"); strings.HasPrefix(line, "GRANT ") && !strings.Contains(line, "/*") {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		t.Fatalf("deploy/sql grants the role %s nothing", role)
	}
	return lines
}

func judged(role Role, lines ...string) *Preflight {
	p := preflight(role)
	rights := warm.ParseRights("9.7.4", false, lines...)
	rights.Account = "a@%"
	a := account{where: "h:3306", rights: rights, tables: []place{{"im_00", "msg_00"}, {"im_00", "msg_01"}, {"im_01", "msg_00"}}}
	p.judgeWarm(a, rules{partitions: true, fetchWarm: true})
	p.judgeManifest(a, "coldtier")
	return p
}

var ofRights = []Code{WarmRights, WarmExcess, ManifestRights, ManifestExcess, AccountAdmin, AccountGrants}

func only(t *testing.T, what string, p *Preflight, want ...Code) {
	t.Helper()
	for _, code := range ofRights {
		if p.Has(code) != slices.Contains(want, code) {
			t.Errorf("%s: %s is found: %v, want %v: %+v", what, code, p.Has(code), want, p.findings)
		}
	}
}

// Each role's file grants what the role needs and nothing that it is warned of; without
// any line that it needs, that is found; and each right too many is.
func TestRolesAreThoseOfDeploy(t *testing.T) {
	t.Parallel()
	optional := []string{"statuses", "`coldtier`.sources TO coldtier_fetch", "restored", "im\\_%`.* TO coldtier_restore", "holds", "LOCK TABLES ON", "scratch", "table_schemas", "copies", "objects", "segments", "checks",
		"check_rounds", "stops", "pauses", "server_slots", "slice_progress", "plans", "plan_slices", "revocations"}
	for _, role := range []Role{Archive, Purge, Fetch, Restore, Drill, Patrol, Canary, Approve} {
		lines := grants(t, role)
		only(t, string(role), judged(role, lines...))
		for i, line := range lines {
			if slices.ContainsFunc(optional, func(s string) bool { return strings.Contains(line, s) }) {
				continue
			}
			p := judged(role, slices.Delete(slices.Clone(lines), i, i+1)...)
			if !p.Has(WarmRights) && !p.Has(ManifestRights) {
				t.Errorf("%s without %s: nothing is missing", role, line)
			}
		}
		with := func(more string, want ...Code) {
			t.Helper()
			only(t, string(role)+" with "+more, judged(role, append(slices.Clone(lines), more)...), want...)
		}
		with("GRANT UPDATE ON `im_01`.`msg_00` TO a@'%'", WarmExcess)
		with("GRANT UPDATE (`body`) ON `im_01`.`msg_00` TO a@'%'", WarmExcess)
		with("GRANT SELECT ON `elsewhere`.* TO a@'%' WITH GRANT OPTION", AccountGrants)
		with("GRANT TRIGGER ON `coldtier`.`slices` TO a@'%'", ManifestExcess)
		with("GRANT FILE ON *.* TO a@'%'", AccountAdmin)
		with("GRANT SUPER ON *.* TO a@'%'", AccountAdmin)
		if role != Purge {
			with("GRANT DELETE ON `im_01`.`msg_00` TO a@'%'", WarmExcess)
			with("GRANT DELETE, DROP ON *.* TO a@'%'", append([]Code{WarmExcess}, map[bool][]Code{false: {ManifestExcess}}[role == Archive]...)...)
		} else {
			with("GRANT INSERT ON `coldtier`.`approvals` TO a@'%'", ManifestExcess)
			with("GRANT UPDATE ON `coldtier`.`plans` TO a@'%'", ManifestExcess)
		}
		if role == Fetch || role == Restore || role == Drill || role == Canary || role == Approve {
			with("GRANT UPDATE ON `coldtier`.`slices` TO a@'%'", ManifestExcess)
		}
	}
	p := judged(Fetch, "GRANT SELECT ON *.* TO a@'%'")
	if !p.Has(ManifestNoStatus) {
		t.Error("a server that cannot note statuses is not told of")
	}
	if p := judged(Archive, "GRANT SELECT ON `im\\_%`.* TO a@'%'", "GRANT SELECT, INSERT, UPDATE, DELETE ON `coldtier`.* TO a@'%'"); !p.Has(ManifestNoMigrate) {
		t.Error("an account that cannot migrate is not told of")
	}
}

// What to do is a statement that the server takes, and does what is meant.
func TestRemediesAreStatements(t *testing.T) {
	t.Parallel()
	remedy := func(p *Preflight, code Code) string {
		for _, f := range p.findings {
			if f.Code == code {
				return f.Remedy
			}
		}
		t.Errorf("%s is not found: %+v", code, p.findings)
		return ""
	}
	const pattern = "GRANT SELECT ON `im\\_%`.* TO a@'%'"
	manifest := func(version string, lines ...string) string {
		p := preflight(Archive)
		p.judgeManifest(account{where: "h:3306", rights: warm.ParseRights(version, false, lines...)}, "im_manifest")
		return remedy(p, ManifestRights)
	}
	for name, c := range map[string]struct {
		got  string
		want []string
	}{
		// The manifest's name matches the pattern of warm, whose grant alone counts on MySQL.
		"hidden": {manifest("9.7.4", pattern, "GRANT SELECT, INSERT, UPDATE, DELETE ON `im_manifest`.* TO a@'%'"),
			[]string{"GRANT SELECT, INSERT, UPDATE, DELETE ON `im\\_manifest`.* TO", "here that on `im\\_%`, and not that on `im_manifest`"}},
		// A grant of its own would hide the pattern's.
		"of warm's pattern": {manifest("9.7.4", pattern), []string{"GRANT SELECT, INSERT, UPDATE, DELETE ON `im\\_manifest`.* TO"}},
		"its own":           {manifest("9.7.4", pattern, "GRANT SELECT, INSERT ON `im\\_manifest`.* TO a@'%'"), []string{"GRANT UPDATE, DELETE ON `im\\_manifest`.* TO"}},
		"on MariaDB":        {manifest("10.11.19-MariaDB", pattern, "GRANT SELECT, INSERT ON `im_manifest`.* TO a@'%'"), []string{"GRANT UPDATE, DELETE ON `im_manifest`.* TO"}},
		"none":              {manifest("9.7.4", "GRANT SELECT ON `x`.* TO a@'%'"), []string{"GRANT SELECT, INSERT, UPDATE, DELETE ON `im\\_manifest`.* TO"}},
		"warm, a pattern":   {remedy(judged(Purge, pattern), WarmRights), []string{"ON `im\\_%`.*, `im_01`.`msg_00` TO"}},
		"warm, none":        {remedy(judged(Purge, "GRANT SELECT ON `x`.* TO a@'%'"), WarmRights), []string{"ON `im\\_00`.*, `im_01`.`msg_00` TO"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.got, want) {
				t.Errorf("%s: %q lacks %q", name, c.got, want)
			}
		}
	}
	if got := remedy(judged(Archive, "GRANT SELECT, UPDATE ON `im\\_%`.* TO a@'%'"), WarmExcess); !strings.Contains(got, "REVOKE UPDATE ON `im\\_%`.* FROM") {
		t.Errorf("%q", got)
	}
}

// What a purge may need for partitions is no excess while no table has any, but where
// purge.strategy says that none is ever exchanged.
func TestPurgeMayExchangeUnlessByRows(t *testing.T) {
	t.Parallel()
	for _, rows := range []bool{false, true} {
		p := preflight(Purge)
		rights := warm.ParseRights("9.7.4", false, grants(t, Purge)...)
		p.judgeWarm(account{where: "h:3306", rights: rights, tables: []place{{"im_00", "msg_00"}}}, rules{rows: rows})
		if p.Has(WarmExcess) != rows {
			t.Errorf("by rows %v: %+v", rows, p.findings)
		}
	}
}

// Without a role nothing is an error of rights, and only what no role does is a warning.
func TestAllRoles(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{Archive, Purge} {
		p := judged(All, grants(t, role)...)
		only(t, string(role), p)
		if !p.Has(WarmRoleNot) && role == Archive || p.Has(AccountShared) != (role == Purge) {
			t.Errorf("%s: %+v", role, p.findings)
		}
	}
	only(t, "root", judged(All, "GRANT ALL PRIVILEGES ON *.* TO a@'%' WITH GRANT OPTION"), AccountAdmin, AccountGrants)
	only(t, "root that archives", judged(Archive, "GRANT ALL PRIVILEGES ON *.* TO a@'%'"), AccountAdmin, WarmExcess, ManifestExcess)
	only(t, "one that updates", judged(All, append(grants(t, Archive), "GRANT UPDATE ON `im_01`.* TO a@'%'")...), WarmExcess)
	p := judged(Purge, "GRANT SELECT ON *.* TO a@'%'")
	for _, f := range p.findings {
		if f.Code == WarmRights && !strings.Contains(f.Text, "`im_00`.*, `im_01`.`msg_00`") {
			t.Errorf("%+v", f)
		}
	}
}

func find(p *Preflight, codes ...Code) (missing []Code) {
	for _, c := range codes {
		if !p.Has(c) {
			missing = append(missing, c)
		}
	}
	return missing
}

// What a server's settings mean, bad and then mended.
func TestServersAreJudged(t *testing.T) {
	t.Parallel()
	for code, v := range map[Code][2]map[string]string{
		WarmReadOnly:      {{"read_only": "ON"}, {"read_only": "OFF"}},
		WarmStatement:     {{"log_bin": "ON", "binlog_format": "STATEMENT"}, {"log_bin": "ON", "binlog_format": "ROW"}},
		WarmOneTablespace: {{"innodb_file_per_table": "OFF"}, {"innodb_file_per_table": "ON"}},
		PacketSmall:       {{"max_allowed_packet": "1048576"}, {}},
	} {
		for i, vars := range v {
			if vars["max_allowed_packet"] == "" {
				vars["max_allowed_packet"] = "16777216"
			}
			p := preflight(All)
			p.judgeServer("server", warm.ServerOf(vars))
			if p.Has(code) != (i == 0) || len(p.findings) != 1-i {
				t.Errorf("%v: %+v", vars, p.findings)
			}
		}
	}
	p := preflight(Archive)
	p.judgeServer("server", warm.ServerOf(map[string]string{"read_only": "ON", "max_allowed_packet": "16777216"}))
	if p.Has(WarmReadOnly) {
		t.Error("an archive account needs no server that takes writes")
	}
}

// Each state of a replica has its finding.
func TestReplicasAreJudged(t *testing.T) {
	t.Parallel()
	server := warm.ServerOf(map[string]string{"server_id": "1", "server_uuid": "u-1"})
	now := time.Now()
	good := warm.Replica{Where: "r:3306", Server: warm.ServerOf(map[string]string{"server_id": "2", "read_only": "1"}), Now: now, Begun: now, Ended: now,
		Sources: []warm.Source{{Host: "h", Port: "3306", ID: "1", UUID: "u-1"}}, Lag: time.Second}
	for code, change := range map[Code]func(r *warm.Replica){
		ReplicaWell:     func(*warm.Replica) {},
		ReplicaSilent:   func(r *warm.Replica) { r.Err = errors.New("refused") },
		ReplicaNot:      func(r *warm.Replica) { r.Sources = nil },
		ReplicaStopped:  func(r *warm.Replica) { r.Stopped = errors.New("does not replicate") },
		ReplicaOther:    func(r *warm.Replica) { r.Sources = []warm.Source{{ID: "3", UUID: "u-3"}} },
		ReplicaLags:     func(r *warm.Replica) { r.Lag = time.Minute },
		ReplicaWritable: func(r *warm.Replica) { r.Server = warm.ServerOf(map[string]string{"server_id": "2"}) },
		ClockSkew:       func(r *warm.Replica) { r.Now = now.Add(-2 * time.Minute) },
		ClockDrifts:     func(r *warm.Replica) { r.Now = now.Add(10 * time.Second) },
	} {
		r := good
		change(&r)
		p := preflight(All)
		p.replica(r, "h:3306", server)
		if missing := find(p, code); len(missing) > 0 {
			t.Errorf("%s is not found: %+v", code, p.findings)
		}
		for _, f := range p.findings {
			if f.Severity != OK && f.Code != code {
				t.Errorf("%s: also %+v", code, f)
			}
		}
	}
}

// Who is attached and not listed, told by number or, without it, by how many they are.
func TestUnlistedReplicas(t *testing.T) {
	t.Parallel()
	listed := [][]warm.Replica{{{Server: warm.ServerOf(map[string]string{"server_id": "2"})}}}
	for name, c := range map[string]struct {
		attached []warm.Attached
		want     bool
	}{
		"listed":    {[]warm.Attached{{ID: "2"}}, false},
		"another":   {[]warm.Attached{{ID: "2"}, {ID: "3", Where: "x:3306"}}, true},
		"by number": {[]warm.Attached{{Where: "x:1"}}, false},
		"too many":  {[]warm.Attached{{Where: "x:1"}, {Where: "y:1"}}, true},
		"none":      {nil, false},
	} {
		p := preflight(All)
		p.unlisted("server", []string{"im_00"}, listed, c.attached)
		if p.Has(ReplicaUnlisted) != c.want {
			t.Errorf("%s: %+v", name, p.findings)
		}
	}
}

func TestConfigClocksAndMachine(t *testing.T) {
	t.Parallel()
	p := preflight(All)
	p.cfg.Purge.Lag, p.cfg.Manifest.Lease = 0, 5*time.Second
	p.cfg.Source.Layout.Epoch = time.Now().Add(time.Hour)
	p.Config("x.yaml")
	if missing := find(p, ConfigShortLag, ManifestLease, ConfigEpoch, ConfigRead); len(missing) > 0 || !p.Refuses() {
		t.Errorf("%v are not found", missing)
	}
	p = preflight(All)
	p.cfg.Manifest.Lease = 2 * time.Hour
	p.Config("x.yaml")
	if missing := find(p, ManifestLeaseLong); len(missing) > 0 || p.Has(ConfigShortLag) || p.Has(ManifestLease) || p.Refuses() {
		t.Errorf("%+v", p.findings)
	}
	for skew, want := range map[time.Duration]Code{0: ClockAgrees, 4 * time.Second: ClockAgrees, -6 * time.Second: ClockDrifts, time.Minute + time.Second: ClockSkew} {
		p := preflight(All)
		p.skew("warm", "x", skew, true)
		if len(p.findings) != 1 || p.findings[0].Code != want {
			t.Errorf("%s: %+v", skew, p.findings)
		}
	}
	p = preflight(All)
	p.skew("clickhouse", "x", time.Hour, false)
	if p.Refuses() || !p.Has(ClockDrifts) {
		t.Errorf("ClickHouse's clock: %+v", p.findings)
	}
	p.judgeSpills("/tmp", 1<<30, spillNeed(1<<20, 512<<20, 2), 1<<20, "im_00.t")
	if p.Has(SpillLow) || !p.Has(SpillRoom) {
		t.Errorf("small slices: %+v", p.findings)
	}
	p.judgeSpills("/tmp", 1<<30, spillNeed(1<<30, 512<<20, 2), 1<<30, "im_00.t")
	if !p.Has(SpillLow) {
		t.Errorf("big slices: %+v", p.findings)
	}
	p.judgeMemory(1 << 30)
	if p.Has(MemoryLimit) {
		t.Error("1 GiB is enough for 512 MiB")
	}
	p.judgeMemory(512 << 20)
	if !p.Has(MemoryLimit) {
		t.Error("512 MiB is not enough for 512 MiB and the program")
	}
}

// Where metrics would go that nobody gets, and where somebody does.
func TestMetricsTargets(t *testing.T) {
	t.Parallel()
	here, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	there := "http://user:secret@" + here.Addr().String()
	p := preflight(Purge)
	p.cfg.Metrics.Textfile, p.cfg.Metrics.Pushgateway = t.TempDir(), there
	if p.Metrics(t.Context()); p.Has(MetricsLost) {
		t.Errorf("%+v", p.findings)
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	p.cfg.Metrics.Textfile = filepath.Join(t.TempDir(), "none")
	if p.Metrics(t.Context()); len(p.findings) != 2 || !p.Has(MetricsLost) {
		t.Errorf("%+v", p.findings)
	}
	if strings.Contains(fmt.Sprint(p.findings), "secret") {
		t.Errorf("a finding has a password: %+v", p.findings)
	}
	p = preflight(Fetch)
	p.cfg.Metrics.Textfile = filepath.Join(t.TempDir(), "none")
	if p.Metrics(t.Context()); len(p.findings) > 0 {
		t.Errorf("a server pushes nothing: %+v", p.findings)
	}
}

// Errors first, by subject; many of one kind are few lines; the summary is the last.
func TestTextIsReadable(t *testing.T) {
	t.Parallel()
	p := preflight(All)
	for i := range 1024 {
		shard := fmt.Sprintf("im_00.msg_%04d", i)
		p.Addf("warm", TableReady, shard, "table %s: 6 columns", shard)
		p.Addf("warm", Code(warm.CodeTriggers), shard, "table %s: has the triggers tr", shard)
	}
	p.Addf("bucket", BucketUnowned, "bucket b", "no mark")
	p.Addf("bucket", BucketUnusable, "bucket b", "broken")
	var b bytes.Buffer
	Write(&b, p.Findings(func(s string) string { return s }), func(s string) string { return s })
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if lines[0] != "bucket b" || !strings.HasPrefix(lines[1], "error  BUCKET_UNUSABLE: broken") || !strings.HasPrefix(lines[2], "       -> ") || !strings.HasPrefix(lines[3], "warn   BUCKET_UNOWNED") {
		t.Errorf("%s", b.String())
	}
	if last := lines[len(lines)-1]; last != "1 error, 1025 warnings, 0 notes; 1024 in order" {
		t.Errorf("summary %q", last)
	}
	if len(lines) > 25 || !strings.Contains(b.String(), "(and 1021 more; all are in --output json)") || !strings.Contains(b.String(), "im_00.msg_0000: 6 columns (and 1023 more)") {
		t.Errorf("%d lines:\n%s", len(lines), b.String())
	}
}

// A look that fails is a finding; the end of the whole run is none.
func TestFailingLooksAreFindings(t *testing.T) {
	t.Parallel()
	p := preflight(All)
	p.probe(t.Context(), "warm", "server x", "its clock", func(context.Context) error { return errors.New("two\nlines") })
	if len(p.findings) != 1 || p.findings[0].Code != ProbeFailed || p.findings[0].Text != "its clock: two lines" {
		t.Errorf("%+v", p.findings)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p = preflight(All)
	p.probe(ended, "warm", "server x", "its clock", func(ctx context.Context) error { return ctx.Err() })
	if len(p.findings) != 0 {
		t.Errorf("%+v", p.findings)
	}
}
