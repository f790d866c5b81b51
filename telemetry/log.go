package telemetry

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"retryproxy/attempt"
)

// NewLogger returns a logger that writes whole lines to w, in the order in which
// they come. format is text, json, or auto: text on a terminal, else JSON. The
// level may be changed while it runs.
func NewLogger(w io.Writer, level slog.Leveler, format string, terminal bool) *slog.Logger {
	out := &output{w: w}
	options := &slog.HandlerOptions{Level: level}
	if format == "text" || format == "auto" && terminal {
		return slog.New(handler{slog.NewTextHandler(out, options), out, false})
	}
	return slog.New(handler{slog.NewJSONHandler(out, options), out, true})
}

// LogCall writes the one line of a call that ended, with every attempt. It is a
// warning when the client did not get what it asked for. l comes from NewLogger.
func LogCall(l *slog.Logger, s *attempt.Summary) {
	level, ctx := slog.LevelInfo, context.Background()
	if s.Result == "failed" || s.Result == "rejected" {
		level = slog.LevelWarn
	}
	if h := l.Handler(); h.Enabled(ctx, level) {
		r := slog.NewRecord(time.Now(), level, "call", 0)
		r.AddAttrs(slog.Any("call", s))
		_ = h.Handle(ctx, r) // nobody to tell
	}
}

// output makes lines of several handlers take turns.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes one line.
func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(line)
}

// handler writes the lines of calls itself: that is several times faster than
// slog's reflection, and every call pays for it.
type handler struct {
	slog.Handler
	out  *output
	json bool
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	s := summaryOf(&r)
	if s == nil {
		return h.Handler.Handle(ctx, r)
	}
	l := lines.Get().(*line)
	defer lines.Put(l)
	l.buf, l.json = l.buf[:0], h.json
	l.record(&r, s)
	_, err := h.out.Write(l.buf)
	return err
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.out, h.json}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.out, h.json}
}

// summaryOf is the call that a record of LogCall carries, nil in any other.
func summaryOf(r *slog.Record) *attempt.Summary {
	if r.NumAttrs() != 1 {
		return nil
	}
	var s *attempt.Summary
	r.Attrs(func(a slog.Attr) bool {
		s, _ = a.Value.Any().(*attempt.Summary)
		return false
	})
	return s
}
