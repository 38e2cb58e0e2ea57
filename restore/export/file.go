package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrExists says that the file to write is there already.
var ErrExists = errors.New("file exists")

// File is a file that gets its name when it is whole. Until then it lies beside, as
// .NAME.*.part, which is all that a killed process leaves.
type File struct {
	*os.File
	path  string
	force bool
	done  bool
}

// Create begins a file, which only its owner can read. A file of the name is refused,
// unless force says to take its place.
func Create(path string, force bool) (*File, error) {
	if err := free(path, force); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.part")
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return &File{File: f, path: path, force: force}, nil
}

func free(path string, force bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("create %s: %w", path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w, and is no regular file: name another", path, ErrExists)
	case !force:
		return fmt.Errorf("%s: %w: name another, or replace it with --force", path, ErrExists)
	}
	return nil
}

// Commit makes the file durable and gives it its name.
func (f *File) Commit() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = f.name()
	}
	if err != nil {
		return fmt.Errorf("finish %s: %w", f.path, err)
	}
	f.done = true
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return fmt.Errorf("finish %s: %w", f.path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("finish %s: %w", f.path, err)
	}
	return nil
}

func (f *File) name() error {
	if f.force {
		return os.Rename(f.Name(), f.path)
	}
	// A link never takes the place of a file that came meanwhile, as a rename does.
	err := os.Link(f.Name(), f.path)
	switch {
	case err == nil:
		return os.Remove(f.Name())
	case errors.Is(err, fs.ErrExist):
		return ErrExists
	}
	if err := free(f.path, false); err != nil { // a file system without links
		return err
	}
	return os.Rename(f.Name(), f.path)
}

// Discard removes what was written, unless it has its name.
func (f *File) Discard() error {
	if f.done {
		return nil
	}
	_ = f.Close() // it may be closed already
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", f.Name(), err)
	}
	return nil
}
