package manifest

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// What a caller may have to tell apart; errors wrap them.
var (
	ErrLeased    = errors.New("another worker holds the lease")
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrServerFull says that as many workers as may scan a server do.
	ErrServerFull = errors.New("as many workers as archive.per_server allows are at the server")
	// ErrSlotLost says that the right to scan a server ran out or is another worker's.
	ErrSlotLost = errors.New("the slot of the server is lost")
	ErrState    = errors.New("not allowed in this state")
	ErrHeld     = errors.New("a hold forbids it")
	ErrStopped  = errors.New("somebody has stopped all purges")
	ErrLag      = errors.New("the lag is not over")
	ErrNotFound = errors.New("not in the manifest")
	ErrCorrupt  = errors.New("corrupt manifest data")
	// ErrConversation says that a conversation ID is longer than the manifest can index.
	ErrConversation = errors.New("conversation ID is too long")
)

// MaxConversation is the length in bytes of the longest conversation ID.
const MaxConversation = 255

const codeDeadlock = 1213

// deadlocked says that the server rolled the transaction back for another's sake.
func deadlocked(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == codeDeadlock
}
