package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/restore/guard"
)

// Hedging: how many reads of the bucket may be begun beside ClickHouse that it might
// have spared, for each query of ClickHouse, and how many at once after a quiet time. In
// a general outage this is all that hedging adds.
// After a part of the budget, one patience-th, ClickHouse counts as failed for the time
// being: the bucket is asked whatever the hedge budget says, lest a page is empty though
// the bucket is well, and the breaker hears of it.
const (
	hedgeRatio = 0.05
	hedgeBurst = 10
	patience   = 2
)

// The stores, as metrics and logs name them.
const (
	storeRows   = "clickhouse"
	storeBucket = "bucket"
)

// Why a store is not asked.
var (
	errUnwell   = errors.New("not asked, since it did not answer lately")
	errUnwanted = errors.New("not to be asked")
	errNotAsked = errors.New("ClickHouse did not answer")
)

// job reads some parts. ClickHouse is asked first, with one statement for all. If it has
// not answered in time the bucket is asked beside it, as far as the hedge budget goes; if
// it fails, instead of it. Whichever has a part first gives it.
type job struct {
	f      *Fetcher
	from   Store
	legs   []*leg
	count  *reads
	events chan event
	left   int // legs that have not landed
}

// leg is a part on its way. An error says that a store cannot give it.
type leg struct {
	*flight
	over               bool // job.left does not count it
	rows, bucket       bool // it is, or was, asked
	rowsErr, bucketErr error
}

// event is an answer: of ClickHouse for the legs of a query, or of the bucket for one.
type event struct {
	store Store
	legs  []*leg
	gave  []answer
	err   error
}

// begin asks the first store. It is called by who wants the parts, since each change of
// goroutine costs some 50 µs where a processor must be woken for it.
func (j *job) begin(ctx context.Context) {
	j.left = len(j.legs)
	j.events = make(chan event, 2*len(j.legs)) // nobody who answers ever waits
	j.askRows(ctx, j.legs)
	j.onward(ctx)
}

// run sees to what was begun until all legs have landed. The end of ctx ends what is read
// from ClickHouse, when the bucket was first.
func (j *job) run(ctx context.Context) {
	hedge := time.NewTimer(j.f.delay.Delay())
	defer hedge.Stop()
	last := time.NewTimer(j.f.cfg.Budget / patience)
	defer last.Stop()
	for j.left > 0 {
		select {
		case e := <-j.events:
			j.take(e)
			j.onward(ctx)
		case <-hedge.C:
			j.hedge(ctx, false)
			j.onward(ctx)
		case <-last.C:
			j.hedge(ctx, true)
			j.onward(ctx)
		case <-ctx.Done():
			for _, l := range j.legs {
				j.fail(l, errors.Join(context.Cause(ctx), l.rowsErr, l.bucketErr))
			}
		}
	}
}

// onward asks the other store for what the one cannot give, and lands what neither can.
func (j *job) onward(ctx context.Context) {
	var rows, bucket []*leg
	for _, l := range j.legs {
		switch {
		case l.finished():
		case l.rowsErr != nil && !l.bucket:
			bucket = append(bucket, l)
		case l.bucketErr != nil && !l.rows:
			rows = append(rows, l)
		}
	}
	j.askBucket(ctx, bucket)
	j.askRows(ctx, rows)
	for _, l := range j.legs {
		if l.rowsErr != nil && l.bucketErr != nil {
			err := errors.Join(l.bucketErr, l.rowsErr)
			if !errors.Is(l.rowsErr, errLacks) && !errors.Is(l.rowsErr, errUnwanted) {
				err = fmt.Errorf("%w: %w", errNotAsked, err)
			}
			j.fail(l, err)
		}
	}
}

// fail lands a leg that no store gives.
func (j *job) fail(l *leg, err error) {
	j.f.land(l.flight, j.from, nil, err)
	j.over(l)
}

func (j *job) over(l *leg) {
	if !l.over {
		l.over = true
		j.left--
	}
}

// answered lands what a store gave, and tells run of it.
func (j *job) answered(e event) {
	for i, l := range e.legs {
		if e.err == nil && e.gave[i].err == nil {
			j.f.land(l.flight, j.from, &loaded{batch: e.gave[i].batch, store: e.store}, nil)
		}
	}
	j.events <- e
}

// take sees an answer.
func (j *job) take(e event) {
	for i, l := range e.legs {
		err := e.err
		if err == nil {
			err = e.gave[i].err
		}
		switch {
		case err == nil:
			j.over(l)
		case e.store == FromClickHouse:
			l.rowsErr = err
			j.f.m.fallback(err)
		default:
			l.bucketErr = err
		}
	}
}

// hedge asks the bucket for what ClickHouse has not given in time, if the hedge budget
// allows it or it is the last chance.
func (j *job) hedge(ctx context.Context, last bool) {
	var late []*leg
	for _, l := range j.legs {
		if !l.finished() && !l.bucket && l.rowsErr == nil {
			late = append(late, l)
		}
	}
	if len(late) == 0 || j.from == FromClickHouse || ctx.Err() != nil {
		return
	}
	if !j.f.hedges.Spend() && !last {
		j.f.m.hedges.denied.Inc()
		return
	}
	j.f.m.hedges.begun.Inc()
	j.askBucket(ctx, late)
}

// askRows begins to read legs from ClickHouse.
func (j *job) askRows(ctx context.Context, legs []*leg) {
	if len(legs) == 0 {
		return
	}
	refuse := func(legs []*leg, err error) {
		for _, l := range legs {
			l.rows, l.rowsErr = true, err
			j.f.m.fallback(err)
		}
	}
	if j.from == FromBucket || j.f.Rows == nil {
		refuse(legs, errUnwanted)
		return
	}
	for _, q := range queries(legs) {
		done, err := j.f.rowsBreaker.Allow()
		if err != nil {
			refuse(q.legs, errUnwell)
			continue
		}
		for _, l := range q.legs {
			l.rows = true
		}
		j.f.hedges.Earn()
		j.count.rows.Add(1)
		j.f.wg.Go(func() {
			gave, err := j.query(ctx, q, done)
			j.answered(event{store: FromClickHouse, legs: q.legs, gave: gave, err: err})
		})
	}
}

// query reads from ClickHouse, and tells its breaker how that went. One that was
// overtaken by the bucket goes on for what is left of a budget: whether ClickHouse is slow
// or dead is known only then.
func (j *job) query(job context.Context, q *query, done func(ok bool)) ([]answer, error) {
	f := j.f
	slow := time.AfterFunc(f.cfg.Budget, func() { done(false) })
	defer slow.Stop()
	impatient := time.AfterFunc(f.cfg.Budget/patience, func() {
		if f.bucketBreaker.State() == guard.Closed { // else a slow ClickHouse is all there is
			done(false)
		}
	})
	defer impatient.Stop()
	ctx, cancel := context.WithTimeoutCause(f.asked(job), f.cfg.FillAfter, errFill)
	defer cancel()
	asked := f.cfg.Clock()
	defer context.AfterFunc(job, func() {
		time.AfterFunc(max(f.cfg.Budget-f.cfg.Clock().Sub(asked), 0), cancel)
	})()
	if err := f.rowSlots.Acquire(ctx, 1); err != nil {
		done(false)
		return nil, context.Cause(ctx)
	}
	defer f.rowSlots.Release(1)
	begun := f.cfg.Clock()
	gave, err := f.readRows(ctx, q)
	took := f.cfg.Clock().Sub(begun)
	done(err == nil)
	f.m.read(storeRows, err, took)
	if err != nil && job.Err() == nil {
		f.why(storeRows, err)
	}
	if err == nil || ctx.Err() != nil { // one that was overtaken lasted at least so long
		f.delay.Observe(took)
	}
	return gave, err
}

// askBucket begins to read legs from the bucket, one ranged GET for each. They are not
// ended when ClickHouse is first: a GET that is cut off costs its connection, and what
// becomes of it is what the breaker goes by.
func (j *job) askBucket(job context.Context, legs []*leg) {
	f := j.f
	for _, l := range legs {
		l.bucket = true
		if j.from == FromClickHouse {
			l.bucketErr = errUnwanted
			continue
		}
		done, err := f.bucketBreaker.Allow()
		if err != nil {
			l.bucketErr = errUnwell
			continue
		}
		j.count.bucket.Add(1)
		f.wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(f.asked(job), f.cfg.FillAfter, errFill)
			defer cancel()
			a := j.get(ctx, l, done)
			j.answered(event{store: FromBucket, legs: []*leg{l}, gave: []answer{a}, err: a.err})
		})
	}
}

func (j *job) get(ctx context.Context, l *leg, done func(ok bool)) answer {
	f := j.f
	slow := time.AfterFunc(f.cfg.Budget, func() { done(false) })
	defer slow.Stop()
	if err := f.bucketSlots.Acquire(ctx, 1); err != nil {
		done(false)
		return answer{err: context.Cause(ctx)}
	}
	defer f.bucketSlots.Release(1)
	begun := f.cfg.Clock()
	b, err := f.readGroup(ctx, l.part)
	done(err == nil || !bucketError(err))
	f.m.read(storeBucket, err, f.cfg.Clock().Sub(begun))
	switch {
	case err == nil:
	case bucketError(err):
		f.why(storeBucket, err)
	default:
		f.damaged(l.part, err)
	}
	return answer{b, err}
}

// why says in the log why a store fails: now and then, for a store that is away fails each
// read.
func (f *Fetcher) why(store string, err error) {
	if f.base.Err() == nil && f.failures.first(store) {
		f.Log.Warn("a store does not give what pages need; others like it are not logged for a while", "store", store, "error", err)
	}
}

// damaged raises the alarm about an object that is lost or damaged: a metric and, once
// in a while, a line in the log, neither with contents.
func (f *Fetcher) damaged(p part, err error) {
	cause := causeOf(err)
	if cause != CauseLost && cause != CauseDamaged {
		return
	}
	f.m.damaged[cause].Inc()
	if f.damage.first(p.ref.Key) {
		f.Log.Error("an object that the manifest names is lost or damaged: restore it from a backup or a replica; see coldtier verify",
			"slice", p.ref.Slice.String(), "key", p.ref.Key, "row_group", p.group, "cause", string(cause), "error", err)
	}
}
