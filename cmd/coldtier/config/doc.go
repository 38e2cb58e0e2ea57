// Package config reads coldtier's one YAML file.
//
// The file is decoded strictly: an unknown key, a value of the wrong type, a
// missing required key are errors that name the file, the line and the column.
// Everything wrong is reported at once, one line each.
//
// # Words
//
//   - variable: `${NAME}` (the environment) or `${file:/path}` (a file's contents
//     without its last line break) inside a value. Variables are put in after the
//     YAML was parsed, so that a secret cannot change the file's structure. `$${`
//     is a literal `${`. Inside `{...}` or `[...]` a value with a variable needs
//     quotes, since YAML ends a bare value at the closing brace.
//   - duration: `800ms`, `168h`, `180d`, `1d12h`; a day is 24 hours.
//   - size: a whole number and B, KiB, MiB, GiB or TiB.
//   - secret: a value that is never printed: Secret and DSN show "***" instead of
//     a password however they are formatted, and Redactor removes passwords from
//     text that others wrote (a driver's error).
//
// # Keys of later versions
//
// Some keys have a fixed name and default although this version does not have
// what they configure (a separate table of bodies, the packed layout). They may stand in the file with their default value; any
// other value is refused with "not in this version", never ignored.
package config
