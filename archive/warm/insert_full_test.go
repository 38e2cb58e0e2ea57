package warm

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// What servers say when they have no room left is told from their other faults.
func TestAFullServerIsKnown(t *testing.T) {
	for _, c := range []struct {
		number uint16
		text   string
		full   bool
	}{
		{1114, "The table 'msg' is full", true},
		{1021, "Disk full (/tmp/#sql_1.MAI); waiting for someone to free some space... (errno: 28 \"No space left on device\")", true},
		{1030, "Got error 28 \"No space left on device\" from storage engine InnoDB", true},
		{1030, "Got error 28 - 'No space left on device' from storage engine", true},
		{1030, "Got error 128 \"Internal error\" from storage engine InnoDB", false},
		{1005, "Can't create table `a`.`msg` (errno: 135 \"No more room in record file\")", true},
		{1005, "Can't create table `a`.`msg` (errno: 28 \"No space left on device\")", true},
		{1005, "Can't create table `a`.`msg` (errno: 150 \"Foreign key constraint is incorrectly formed\")", false},
		{1005, "Can't create table `a`.`t28` (errno: 140 \"Wrong create options\")", false},
		{1062, "Duplicate entry '28' for key 'PRIMARY'", false},
	} {
		err := full(&mysql.MySQLError{Number: c.number, Message: c.text})
		if errors.Is(err, ErrFull) != c.full {
			t.Errorf("error %d (%s): full is %v", c.number, c.text, !c.full)
		}
	}
}
