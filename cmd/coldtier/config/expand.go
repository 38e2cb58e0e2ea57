package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Lookup is where variables come from.
type Lookup struct {
	Env  func(name string) (string, bool)
	File func(path string) ([]byte, error)
}

// System looks variables up in the environment and the file system.
func System() Lookup { return Lookup{Env: os.LookupEnv, File: os.ReadFile} }

// Expand puts the variables into a text of the command line, as into a value of the
// file, and gives their values, which are secrets.
func (l Lookup) Expand(s string) (out string, gave []string, err error) { return l.expand(s) }

// expand puts in the variables of a value and says whether there were any. Every
// value that a variable gave is returned too. Errors quote a variable's name or
// path, never a value.
func (l Lookup) expand(s string) (out string, gave []string, err error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), gave, nil
		}
		if i > 0 && s[i-1] == '$' { // $${ is a literal ${
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		name, rest, ok := strings.Cut(s[i+2:], "}")
		if !ok {
			return "", nil, errors.New("${ without its }; write $${ for a literal ${")
		}
		v, err := l.value(name)
		if err != nil {
			return "", nil, err
		}
		b.WriteString(v)
		gave = append(gave, v)
		s = rest
	}
}

func (l Lookup) value(name string) (string, error) {
	if path, ok := strings.CutPrefix(name, "file:"); ok {
		if path == "" {
			return "", errors.New("${file:} without a path")
		}
		data, err := l.File(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return "", fmt.Errorf("file %s does not exist", path)
		case errors.Is(err, os.ErrPermission):
			return "", fmt.Errorf("file %s may not be read", path)
		case err != nil:
			return "", fmt.Errorf("file %s cannot be read", path)
		}
		text := strings.TrimSuffix(string(data), "\n")
		return strings.TrimSuffix(text, "\r"), nil
	}
	if checkIdentifier(name) != nil {
		return "", errors.New("${...} wants the name of an environment variable or file:/path")
	}
	v, ok := l.Env(name)
	if !ok {
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return v, nil
}
