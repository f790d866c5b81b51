package deadletter

import (
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

// Order is the wish to run a letter again.
type Order struct {
	Kind            idempotency.Kind // Requeued, Redriven
	Bulk            bool             // one of many
	ExecutedUnknown bool             // a person knows that it may have been executed, by a repeat without a key too, and wants it all the same
	At              time.Time        // not before; zero: at once
	Due             bool             // a time that a person gave it has come
	Signed                           // whose wish; may be empty
}

// alone says that a person looked at this one letter.
func (o *Order) alone() bool { return !o.Bulk && o.Kind == idempotency.Requeued }

// MayRequeue says whether a letter may run again; nil: it may. rec.Honoured is
// whether its key would be honoured now. Errors: ErrBusy, ErrClosed, ErrRefused.
func MayRequeue(rec *idempotency.Record, o *Order) error {
	switch {
	case !rec.State.Ended():
		return ErrBusy
	case !rec.State.Letter():
		return ErrClosed
	case rec.Executed == classify.ExecutedYes:
		return refused("the upstream acted: fetch the result there and resolve it as executed")
	case o.alone() && o.ExecutedUnknown:
		return nil
	case doubtful(rec) && !o.alone():
		return refused("it may have been executed, and no honoured key keeps the upstream from acting twice: requeue it by itself, or resolve it")
	case doubtful(rec):
		return refused("it may have been executed, and no honoured key keeps the upstream from acting twice: look there first; executed_unknown sends it all the same")
	case rec.Keyless && !o.alone():
		return refused("it has no key, and its bot may have repeated it since: ask, then requeue it by itself")
	case rec.Keyless:
		return refused("it has no key, and its bot may have repeated it since: ask, the upstream knows; executed_unknown sends it all the same")
	}
	return nil
}

// doubtful says that it may have been executed and that to run it again may
// execute it twice.
func doubtful(rec *idempotency.Record) bool {
	return rec.State == idempotency.StateInDoubt || rec.Executed != classify.ExecutedNo && (rec.Keyless || !rec.Honoured)
}

// NextRedrive is when a letter that died now is tried again by itself; zero: not
// any more. schedule is the policy's: an entry for each try since the last one
// that somebody asked for. What a repeat cannot mend is not. It has at most idempotency.RunsLast entries, as a
// record does not remember more runs in a row.
func NextRedrive(schedule []time.Duration, rec *idempotency.Record, now time.Time) time.Time {
	made := 0
	for i := len(rec.Runs) - 1; i >= 0 && rec.Runs[i].Kind == idempotency.Redriven; i-- {
		made++
	}
	if made >= len(schedule) || rec.Reason == "fail_permanent" || rec.Reason == ReasonCancelled || MayRequeue(rec, &Order{Kind: idempotency.Redriven}) != nil {
		return time.Time{}
	}
	return now.Add(schedule[made])
}

// MayDrop says whether a letter may be given up for good; nil: it may. Errors:
// ErrBusy, ErrClosed, ErrRefused.
func MayDrop(rec *idempotency.Record) error {
	switch {
	case !rec.State.Ended():
		return ErrBusy
	case !rec.State.Letter():
		return ErrClosed
	case rec.State == idempotency.StateInDoubt:
		return refused("it is in doubt: its key is not free before somebody looked; resolve it as executed or not executed")
	}
	return nil
}

// MayResolve says whether a letter may be settled; nil: it may. Errors: ErrBusy,
// ErrClosed.
func MayResolve(rec *idempotency.Record) error {
	switch {
	case !rec.State.Ended():
		return ErrBusy
	case !rec.State.Letter():
		return ErrClosed
	}
	return nil
}
