package attempt

import "errors"

// Why an order about a call that waits changes nothing.
var (
	ErrNoCall     = errors.New("no call of this id waits here: /api/v1/calls?state=waiting and ?state=parked list those that do; of several replicas, ask the one that it came to")
	ErrNotWaiting = errors.New("its wait cannot be ended")
	ErrNotNow     = errors.New("it would only be turned away now, so it waits on as before")
)
