package warm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Create makes a table of what SHOW CREATE TABLE said of another, under a name. Foreign
// keys, which speak of tables that need not be there, are left out. A server of another
// kind than the one that said it may not know a collation: another one of the character
// set takes its place, which changes no value but what is sorted and taken for the same.
// The notes say what is not as it was. A table that is there already is left as it is.
func (t *Target) Create(ctx context.Context, name, showCreate string) (notes []string, err error) {
	fail := func(err error) ([]string, error) {
		return notes, fmt.Errorf("create table %s.%s: %w", t.d.name, name, err)
	}
	ddl, notes, err := Definition(name, showCreate)
	if err != nil {
		return fail(err)
	}
	s, err := t.d.session(ctx)
	if err != nil {
		return fail(again(ctx, err))
	}
	defer s.close(ctx)
	for {
		_, err := s.exec(ctx, ddl)
		switch number(err) {
		case 0:
			if err != nil {
				return fail(again(ctx, err))
			}
			return notes, nil
		case 1050: // it is there
			return notes, nil
		case 1273:
			changed, note := otherCollation(ddl, err)
			if changed == ddl {
				return fail(err)
			}
			ddl, notes = changed, append(notes, note)
		case 3822: // names of CHECKs are the database's, and another table has it
			changed := regexp.MustCompile("CONSTRAINT `(?:[^`]|``)+` CHECK").ReplaceAllString(ddl, "CHECK")
			if changed == ddl {
				return fail(err)
			}
			ddl = changed
		default:
			if err := full(err); errors.Is(err, ErrFull) {
				return fail(err)
			}
			if denied(err) || goneAway(err) {
				return fail(again(ctx, err))
			}
			return fail(fmt.Errorf("%w: this server does not take the definition with which the rows were archived: create the table by hand after it, which a dry run prints as JSON, and restore without creating: %w", ErrUnfit, err))
		}
	}
}

// Definition is a CREATE TABLE of what SHOW CREATE TABLE said of another table, under
// a name, without foreign keys.
func Definition(name, showCreate string) (ddl string, notes []string, err error) {
	head, body, ok := strings.Cut(showCreate, "(\n")
	if !ok || !strings.HasPrefix(head, "CREATE TABLE `") {
		return "", nil, errors.New("the archive has no definition of the table: create it by hand, and restore without creating")
	}
	var lines []string
	for line := range strings.SplitSeq(body, "\n") {
		if strings.HasPrefix(line, "  CONSTRAINT `") && strings.Contains(line, " FOREIGN KEY (") {
			notes = append(notes, "left out of the table: "+strings.TrimSuffix(strings.TrimSpace(line), ","))
			continue
		}
		if n := len(lines); strings.HasPrefix(line, ")") && n > 0 {
			lines[n-1] = strings.TrimSuffix(lines[n-1], ",")
		}
		lines = append(lines, line)
	}
	return "CREATE TABLE " + quote(name) + " (\n" + strings.Join(lines, "\n"), notes, nil
}

// otherCollation puts a collation that both kinds of server know for one that this does
// not.
func otherCollation(ddl string, err error) (changed, note string) {
	var my *mysql.MySQLError
	if !errors.As(err, &my) {
		return ddl, ""
	}
	m := regexp.MustCompile(`'([A-Za-z0-9_]+)'`).FindStringSubmatch(my.Message)
	if m == nil {
		return ddl, ""
	}
	unknown := m[1]
	charset, _, _ := strings.Cut(unknown, "_")
	known := charset + "_bin"
	if strings.HasPrefix(charset, "utf8") && strings.HasSuffix(unknown, "_ci") {
		known = charset + "_unicode_520_ci"
	}
	if known == unknown {
		return ddl, ""
	}
	return regexp.MustCompile(`\b`+unknown+`\b`).ReplaceAllString(ddl, known), fmt.Sprintf("collation %s is unknown to this server: the table has %s in its place", unknown, known)
}
