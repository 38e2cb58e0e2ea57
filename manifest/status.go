package manifest

import "time"

// StatusKind is what happened to a message after it was archived.
type StatusKind string

// The kinds. StatusNone takes an earlier status back.
const (
	StatusNone     StatusKind = "none"
	StatusRecalled StatusKind = "recalled"
	StatusDeleted  StatusKind = "deleted"
	StatusEdited   StatusKind = "edited"
)

// Hides says whether readers must not be given the message's body.
func (k StatusKind) Hides() bool { return k == StatusRecalled || k == StatusDeleted }

// Status is the status of an archived message.
type Status struct {
	Conversation []byte     `json:"conversation"`
	MessageID    uint64     `json:"message_id,string"`
	Kind         StatusKind `json:"kind"`
	Value        *string    `json:"value,omitempty"` // what the table's status column is to read; nil: as archived
	Null         bool       `json:"null,omitempty"`  // the column is to read NULL; never put: what taking a folded status back may give
	By           string     `json:"by"`              // who put it
	At           time.Time  `json:"at"`              // by the manifest's clock
}

// Original is what a message's status column read before a status was folded into it.
type Original struct {
	Value []byte `json:"value"` // canonical text; nil: NULL
}

// FoldedStatus is a status as a generation has it.
type FoldedStatus struct {
	Status
	// Original is set where the status column was written by the fold, in this
	// generation or in one that its row was carried from. Nil: it reads as warm had it.
	Original *Original `json:"original,omitempty"`
}

// effective is the status as readers apply it to a generation whose column may have
// been written: a status without a value, or one that was taken back, then reads as
// the column did before.
func (f *FoldedStatus) effective() Status {
	s := f.Status
	if s.Value == nil && f.Original != nil {
		if s.Null = f.Original.Value == nil; !s.Null {
			s.Value = new(string(f.Original.Value))
		}
	}
	return s
}

// Column is what the status column is to read in the next generation, given what it
// reads in the one before; nil is NULL. Original is then noted, if it was not yet.
func (f *FoldedStatus) Column(now []byte) []byte {
	s := f.effective()
	switch {
	case s.Null:
		return nil
	case s.Value == nil:
		return now
	}
	return []byte(*s.Value)
}
