package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/restore/drill/report"
)

// reportFlags are the flags of drill that look at drills of before and make none.
type reportFlags struct {
	check   string
	keys    []string
	history bool
	last    int
}

func (r *reportFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.check, "check", "", "verify a `REPORT` instead: a file, a key in the bucket, or the ID of a drill")
	f.StringArrayVar(&r.keys, "trusted-key", nil, "with --check, take the public key of this `FILE` (PEM) instead of the configuration's; may be given again")
	f.BoolVar(&r.history, "history", false, "show the drills so far instead")
	f.IntVar(&r.last, "last", 20, "with --history, the last `N` drills")
	for _, other := range []string{"dry-run", "sample", "seed", "report-dir"} {
		c.MarkFlagsMutuallyExclusive("check", "history", other)
	}
	onlyWith(c, "check", "trusted-key")
	onlyWith(c, "history", "last")
}

// asked says that a look at drills of before is wanted, and gives it.
func (r *reportFlags) asked(ctx context.Context, a *app) (_ result, asked bool, err error) {
	switch {
	case r.check != "":
		res, err := a.drillCheck(ctx, r.check, r.keys)
		return res, true, err
	case r.history:
		if r.last < 1 {
			return nil, true, usage("--last %d: want 1 or more", r.last)
		}
		res, err := a.drillHistory(ctx, r.last)
		return res, true, err
	}
	return nil, false, nil
}

// maxReport bounds what is read as a file of a report.
const maxReport = 256 << 20

// drillCheck verifies a report. With keys and a local file it needs no configuration, so
// that an auditor can do it who has neither.
func (a *app) drillCheck(ctx context.Context, name string, keys []string) (_ result, err error) {
	var trusted []report.Public
	for _, path := range keys {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, usage("--trusted-key: %w", err)
		}
		key, err := report.ParsePublic(string(text))
		if err != nil {
			return nil, usage("--trusted-key %s: %w", path, err)
		}
		trusted = append(trusted, key)
	}
	local := localReport(name)
	var cfg *config.Config
	if local == "" || len(trusted) == 0 {
		if cfg, err = a.load(); err != nil {
			return nil, err
		}
	}
	if len(trusted) == 0 {
		if trusted, err = trustedKeys(cfg.Drill); err != nil {
			return nil, setup(err)
		}
	}
	r := &checkedReport{}
	var files *report.Files
	alone := false
	if local != "" {
		r.Where = local
		if files, err = localFiles(local); err != nil {
			return nil, err
		}
		alone = !strings.HasSuffix(name, ".html") && files.HTMLSig == nil
	} else if files, err = a.bucketFiles(ctx, cfg, name, r); err != nil {
		return nil, err
	}
	c, err := report.Verify(files, trusted, alone)
	if c == nil {
		return nil, err
	}
	r.Verified, r.Page, r.SignedBy, r.Why = err == nil, files.HTML != nil, c.SignedBy, c.Why
	x := c.Report
	r.Drill, r.Source, r.Began, r.Verdict, r.By, r.Checks = x.Drill, x.Source, stamp(x.Began), x.Verdict, x.By, len(x.Checks)
	return r, err
}

// trustedKeys are the keys of the configuration whose signatures count.
func trustedKeys(c config.Drill) (all []report.Public, err error) {
	if key := c.SigningKey.Reveal(); key != "" {
		s, err := report.ParseSigner(key)
		if err != nil {
			return nil, err
		}
		own, err := s.Public()
		if err != nil {
			return nil, err
		}
		all = append(all, own)
	}
	for _, text := range c.TrustedKeys {
		key, err := report.ParsePublic(text)
		if err != nil {
			return nil, err
		}
		all = append(all, key)
	}
	return all, nil
}

// localReport is the path of the report's JSON if a name is one of this machine: the JSON, its page, or
// the folder of both.
func localReport(name string) string {
	if base, ok := strings.CutSuffix(name, ".html"); ok {
		name = base + ".json"
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return ""
	case info.IsDir():
		return filepath.Join(name, report.FileJSON)
	}
	return name
}

func localFiles(path string) (*report.Files, error) {
	base := strings.TrimSuffix(path, ".json")
	f := &report.Files{}
	for end, into := range map[string]*[]byte{".json": &f.JSON, ".json.sig": &f.JSONSig, ".html": &f.HTML, ".html.sig": &f.HTMLSig} {
		file := base + end
		if end == ".json" {
			file = path
		}
		data, err := readReport(file)
		switch {
		case errors.Is(err, fs.ErrNotExist) && end != ".json":
		case err != nil:
			return nil, usage("--check: %w", err)
		default:
			*into = data
		}
	}
	return f, nil
}

func readReport(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxReport+1))
	if err == nil && len(data) > maxReport {
		err = fmt.Errorf("%s: longer than %d bytes: it is no report", path, maxReport)
	}
	return data, err
}

// bucketFiles reads a report from the bucket, which is all it needs of the surroundings.
func (a *app) bucketFiles(ctx context.Context, cfg *config.Config, name string, r *checkedReport) (_ *report.Files, err error) {
	p := &parts{cfg: cfg}
	defer func() { err = joinClose(err, p) }()
	if err := a.openBucket(ctx, p); err != nil {
		return nil, setup(err)
	}
	key, err := reportKey(cfg, name)
	if err != nil {
		return nil, err
	}
	r.Where = key
	base := strings.TrimSuffix(key, ".json")
	f := &report.Files{}
	for _, x := range []struct {
		end  string
		into *[]byte
	}{{".json", &f.JSON}, {".json.sig", &f.JSONSig}, {".html", &f.HTML}, {".html.sig", &f.HTMLSig}} {
		data, err := p.bucket.Get(ctx, base+x.end)
		switch {
		case errors.Is(err, bucket.ErrNotFound) && x.end != ".json":
		case errors.Is(err, bucket.ErrNotFound):
			return nil, usage("--check %s: there is no such file here and no object %s in the bucket: coldtier drill --history lists the drills", name, key)
		case errors.Is(err, bucket.ErrCorrupt):
			return nil, fmt.Errorf("%w: %w", report.ErrRefused, err)
		case err != nil:
			return nil, err
		default:
			*x.into = data
		}
	}
	return f, nil
}

// reportKey is the key of a report's JSON below the bucket's prefix, by a key, an s3:// address or the ID of
// a drill.
func reportKey(cfg *config.Config, name string) (string, error) {
	b := cfg.Bucket
	key := name
	if rest, ok := strings.CutPrefix(name, "s3://"); ok {
		all := b.Name + "/"
		if b.Prefix != "" {
			all += b.Prefix + "/"
		}
		if key, ok = strings.CutPrefix(rest, all); !ok {
			return "", usage("--check %s: want a key below s3://%s, the bucket of this configuration", name, all)
		}
	}
	if base, ok := strings.CutSuffix(key, ".html"); ok {
		key = base + ".json"
	}
	if !strings.HasSuffix(key, ".json") {
		if !strings.Contains(key, "/") {
			key = cfg.Drill.ReportDir + "/" + key
		}
		key = strings.TrimSuffix(key, "/") + "/" + report.FileJSON
	}
	return key, nil
}

// checkedReport is a report that was checked.
type checkedReport struct {
	Where    string         `json:"report"`
	Verified bool           `json:"verified"`
	SignedBy string         `json:"signed_by,omitempty"`
	Page     bool           `json:"page"` // the HTML was there, and is verified as well
	Drill    string         `json:"drill"`
	Source   string         `json:"source"`
	Began    string         `json:"began"`
	By       report.By      `json:"by"`
	Verdict  report.Verdict `json:"verdict"`
	Checks   int            `json:"checks"`
	Why      []string       `json:"why,omitempty"` // the verdict is fail
}

func (r *checkedReport) text(w io.Writer) {
	fmt.Fprintf(w, "report of drill %s of %s, began %s, by %s on %s, coldtier %s\n", printable(r.Drill), printable(r.Source), r.Began, printable(r.By.User), printable(r.By.Host), printable(r.By.Version))
	if r.SignedBy != "" {
		fmt.Fprintf(w, "signed by key %s, which is trusted\n", r.SignedBy)
	}
	switch {
	case !r.Page:
		fmt.Fprintln(w, "its HTML page is not beside it and was not checked")
	case r.Verified:
		fmt.Fprintln(w, "its HTML page is signed by the same key and belongs to it")
	}
	fmt.Fprintf(w, "the drill's verdict, which follows from its %s: %s\n", count(r.Checks, "check"), r.Verdict)
	for _, s := range r.Why {
		fmt.Fprintf(w, "  %s\n", printable(s))
	}
	if r.Verified {
		fmt.Fprintln(w, "verified: nothing was changed since it was signed")
	}
}
