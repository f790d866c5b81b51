package main

import (
	"context"
	"time"

	"retryproxy/pause"
)

// mostPauses is far more than a studio has shops.
const mostPauses = 10_000

// resumeShop is an operator's word that the calls of a shop may go on.
func (a *app) resumeShop(shop, platform, by, note string) []pause.Pause {
	ended := a.pauses.Resume(shop, platform, by, note, time.Now())
	if len(ended) > 0 {
		a.proxy.WakeShop(shop)
	}
	return ended
}

// sweepPauses notices the end of quotas that no call asks about.
func (a *app) sweepPauses(ctx context.Context) error {
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			a.pauses.List(now)
		}
	}
}

// pauseEvent tells of a shop that a platform stopped, or that goes on.
func (a *app) pauseEvent(e pause.Event) {
	a.metrics.Pause(e.Platform, e.Reason, !e.Ended)
	attrs := []any{"platform", e.Platform, "shop", e.Shop, "operation", e.Operation, "reason", e.Reason}
	if e.Ended {
		attrs = append(attrs, "why", e.Why, "by", e.By, "note", e.Note, "since", e.Since, "turned_away", e.Calls)
		if e.Why == pause.WhyDropped && e.Reason == pause.RiskControl {
			a.log.Error("there are too many pauses: calls go on that risk control had stopped", attrs...)
			return
		}
		a.log.Info("calls go on that a platform had stopped", attrs...)
		return
	}
	attrs = append(attrs, "code", e.Code, "message", e.Message, "host", e.Host, "until", e.Until)
	if e.Reason == pause.RiskControl {
		a.log.Error("a platform stopped a shop: its calls are not sent until a person resumes it", attrs...)
		return
	}
	a.log.Warn("a platform stopped calls: they are not sent for now", attrs...)
}
