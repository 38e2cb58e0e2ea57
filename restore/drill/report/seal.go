package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// The names of a report's files, in a folder of its own.
const (
	FileJSON = "report.json"
	FileHTML = "report.html"
	sigEnd   = ".sig"
)

// Files are a report as it is stored. The signatures are nil where there is no key.
type Files struct {
	JSON, HTML       []byte
	JSONSig, HTMLSig []byte
}

// Seal writes a report: it sets FormatVersion, Signing and, by the checks, Verdict. key may
// be nil: then the report says that it is unsigned.
func Seal(r *Report, key *Signer) (*Files, error) {
	fail := func(err error) (*Files, error) {
		return nil, fmt.Errorf("write the report of drill %s: %w", r.Drill, err)
	}
	r.FormatVersion, r.Signing = FormatVersion, Unsigned
	if key != nil {
		r.Signing = key.id
	}
	r.Verdict, _ = r.Judge()
	r.Began, r.Ended = r.Began.UTC(), r.Ended.UTC()
	fill(reflect.ValueOf(r).Elem())
	if err := r.Validate(); err != nil {
		return fail(err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fail(err)
	}
	f := &Files{JSON: b.Bytes()}
	var err error
	if f.HTML, err = Page(r, digest(f.JSON)); err != nil {
		return fail(err)
	}
	if key == nil {
		return f, nil
	}
	if f.JSONSig, err = key.sign(FileJSON, f.JSON); err != nil {
		return fail(err)
	}
	if f.HTMLSig, err = key.sign(FileHTML, f.HTML); err != nil {
		return fail(err)
	}
	return f, nil
}

// fill makes empty lists of nil ones, which JSON would write as null. Lists that are left
// out when they are empty stay as they are.
func fill(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // the others hold no lists
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				return
			}
			if x := v.Field(i); x.Kind() == reflect.Slice && x.IsNil() && !strings.Contains(f.Tag.Get("json"), "omitempty") {
				x.Set(reflect.MakeSlice(x.Type(), 0, 0))
			}
			fill(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem())
		}
	}
}

// named gives the files by their names; those that are not there are left out. The JSON
// comes last: where it is, the others are.
func (f *Files) named(each func(name string, data []byte) error) error {
	for _, x := range []struct {
		name string
		data []byte
	}{{FileHTML, f.HTML}, {FileHTML + sigEnd, f.HTMLSig}, {FileJSON + sigEnd, f.JSONSig}, {FileJSON, f.JSON}} {
		if x.data == nil {
			continue
		}
		if err := each(x.name, x.data); err != nil {
			return err
		}
	}
	return nil
}

// Putter stores an object where none is.
type Putter interface {
	PutReport(ctx context.Context, key, contentType string, data []byte) error
}

// Keys are where a report lies in the bucket, below its prefix.
type Keys struct{ JSON, HTML string }

// KeysOf gives the keys of a drill's report below a folder, which is drill.report_dir.
func KeysOf(dir, drill string) Keys {
	return Keys{dir + "/" + drill + "/" + FileJSON, dir + "/" + drill + "/" + FileHTML}
}

// Put stores the files of a drill below a folder of the bucket.
func (f *Files) Put(ctx context.Context, p Putter, dir, drill string) (Keys, error) {
	err := f.named(func(name string, data []byte) error {
		kind := "application/json"
		if name == FileHTML {
			kind = "text/html; charset=utf-8"
		}
		if err := p.PutReport(ctx, dir+"/"+drill+"/"+name, kind, data); err != nil {
			return fmt.Errorf("store the report of drill %s: %w", drill, err)
		}
		return nil
	})
	return KeysOf(dir, drill), err
}

// Write writes the files into a folder of the local disk, which it makes, and never over
// others. It gives the path of the JSON.
func (f *Files) Write(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make the folder of the report: %w", err)
	}
	err := f.named(func(name string, data []byte) error {
		out, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		_, err = out.Write(data)
		if err = errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		return nil
	})
	return filepath.Join(dir, FileJSON), err
}
