package warm

import (
	"errors"
	"regexp"
)

// A read-only transaction does not keep a server from DDL, which MariaDB carries out in it:
// so only what begins like a question is sent. What changes rows in one, such as WITH ...
// DELETE, the transaction refuses.
var question = regexp.MustCompile(`^[\s(]*(?i:SELECT|WITH|SHOW)\b`)

// CheckPauseQuery says what is wrong with a text that is to ask a server whether to pause.
func CheckPauseQuery(text string) error {
	if text == "" || question.MatchString(text) {
		return nil
	}
	return errors.New("want a statement that begins with SELECT, WITH or SHOW")
}
