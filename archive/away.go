package archive

import "time"

// awayPause is how long it is waited between two questions to a manifest that does not answer.
const awayPause = time.Second

// unanswered is an error of the manifest that says nothing of the slice it was asked for.
type unanswered struct{ error }

func (e unanswered) Unwrap() error { return e.error }

// waits says whether the manifest, which does not answer, is to be asked again: for as long
// as its leases last, which is when others take over what was begun. A server that fails over
// is back by then, and does not cost the run all that it has not begun. The caller holds mu.
func (q *queue) waits(err error) bool {
	now := q.a.Clock()
	if q.away.IsZero() {
		q.away = now
		q.a.Log.Warn("the manifest does not answer, and no slice is begun until it does", "for_at_most", q.a.Manifest.LeaseTTL().String(), "error", err)
	}
	return now.Sub(q.away) < q.a.Manifest.LeaseTTL()
}

// answered says that the manifest did. The caller holds mu.
func (q *queue) answered() {
	if !q.away.IsZero() {
		q.away = time.Time{}
		q.a.Log.Info("the manifest answers again")
	}
}

// told is answered for who does not hold mu.
func (q *queue) told() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answered()
}

// putOff puts a slice back of which nothing is known, if the manifest is to be asked again.
func (q *queue) putOff(l *line, w *Work, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.waits(err) {
		return false
	}
	q.back(l, w)
	l.full = q.a.Clock().Add(awayPause)
	return true
}

// giveUp takes out all that was not begun, for an error. The caller holds mu.
func (q *queue) giveUp(err error, left func(*Work, error)) {
	for _, l := range q.lines {
		for _, d := range l.days {
			for _, w := range d.work {
				left(w, err)
			}
		}
		l.days = nil
	}
	for _, w := range q.busy {
		left(w, err)
	}
	q.busy = nil
}
