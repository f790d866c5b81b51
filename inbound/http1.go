package inbound

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"retryproxy/message"
)

// A connection of HTTP/1.1 is the transport of the call it serves.
var _ transport = (*conn)(nil)

func (k *conn) context() context.Context { return k.ctx }

// read lets a client go on that waits for 100 Continue, then reads.
func (k *conn) read(p []byte, idle time.Duration) (int, error) {
	if k.expecting.CompareAndSwap(true, false) && !k.in.pending() {
		err := k.interim(100, nil)
		if err != nil && !errors.Is(err, ErrAnswered) {
			return 0, err
		}
	}
	return k.body.read(p, idle)
}

func (k *conn) closeRead() { k.body.end() }

func (k *conn) trailers() message.Fields { return k.body.trailers }

func (k *conn) watchClient() {
	k.watched.Store(true)
	if k.body.done.Load() {
		k.watchNow()
	}
}

func (k *conn) left() time.Time { return moment(&k.leftAt) }

// moment is a time in Unix nanoseconds; 0 is the zero time.
func moment(at *atomic.Int64) time.Time {
	if n := at.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// interim writes a 1xx head unless the answer has begun.
func (k *conn) interim(status int, fields message.Fields) error {
	head := append(appendFields(appendStatus(nil, status, ""), fields), "\r\n"...)
	k.sending.Lock() // held over the write: this lock is the order of the writes
	defer k.sending.Unlock()
	if k.answered {
		return ErrAnswered
	}
	_, err := k.out.write(head, controlIdle)
	return err
}

func (k *conn) acceptConnect(fields message.Fields) (*Stream, error) {
	head := appendStatus(nil, 200, "Connection established")
	return k.handOver(append(appendFields(head, fields), "\r\n"...))
}

func (k *conn) upgrade(c *Call, r *message.Response) (*Stream, error) {
	head := appendFields(appendStatus(nil, 101, r.Reason), r.Fields)
	if !r.Fields.Has("Upgrade") {
		head = appendField(head, "Upgrade", c.Request.Fields.Get("Upgrade"))
	}
	return k.handOver(append(head, "Connection: Upgrade\r\n\r\n"...))
}

// handOver writes head and makes the connection a Stream.
func (k *conn) handOver(head []byte) (*Stream, error) {
	if !k.body.done.Load() || k.call.Bad != nil {
		return nil, fmt.Errorf("inbound: hand over: %w", ErrBodyStopped)
	}
	if !k.claim() {
		return nil, ErrAnswered
	}
	k.watch.stop()
	k.server.handedOver(k)
	if _, err := k.out.write(head, controlIdle); err != nil {
		k.abort()
		return nil, err
	}
	_ = k.raw.SetDeadline(time.Time{}) // fails on a closed connection, where Read says so
	return &Stream{k}, nil
}

func (k *conn) answer(c *Call, r *message.Response, idle time.Duration) (int64, error) {
	defer func() { _ = r.Body.Close() }()
	if !k.claim() {
		return 0, ErrAnswered
	}
	if r.Status < 200 || r.Status > 999 {
		k.abort()
		return 0, badStatus(r.Status)
	}
	a := answer{conn: k, res: r, idle: idle}
	a.frame(c)
	a.begin(c)
	defer a.free()
	err := a.send()
	if err != nil {
		k.abort()
	}
	return a.sent, err
}

func badStatus(status int) error {
	return fmt.Errorf("inbound: %d is no status for an answer", status)
}
