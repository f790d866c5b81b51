package upstream

import (
	"errors"
	"io"
	"sync"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

// upgraded is a connection after a 101. The end of the attempt's ctx cuts it.
type upgraded struct {
	cn   *conn
	once sync.Once
}

var noDeadline time.Time

// noBody is the content of an answer that has none.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }

// upgrade hands the connection over with the bytes that came behind the header.
func (x *exchange) upgrade(h *head) Result {
	if x.up != nil {
		return x.fail(classify.FaultMalformed, malformed("101 before the end of the request"))
	}
	if x.cn.in.empty() {
		x.cn.in.give()
	}
	if err := errors.Join(x.cn.readBy(noDeadline), x.cn.writeBy(noDeadline)); err != nil {
		return x.fail(readFault(err), err)
	}
	r := &message.Response{
		Status: h.status, Reason: h.reason, Version: h.version, Fields: h.fields, Length: -1,
		Body: noBody{}, Upgrade: &upgraded{cn: x.cn},
	}
	return x.result(Result{Response: r, Outcome: classify.Outcome{Phase: classify.PhaseDone, Status: h.status}})
}

// Read returns first what was received together with the 101.
func (u *upgraded) Read(p []byte) (int, error) {
	if !u.cn.in.empty() {
		return u.cn.readThrough(p)
	}
	return u.cn.nc.Read(p)
}

func (u *upgraded) Write(p []byte) (int, error) { return u.cn.nc.Write(p) }

// CloseWrite tells the peer that nothing more comes from us.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.cn.nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return u.cn.nc.Close()
}

// Close may be called at any time, and more than once.
func (u *upgraded) Close() error {
	u.once.Do(func() {
		if u.cn.stop != nil {
			u.cn.stop()
		}
		u.cn.close()
	})
	return nil
}
