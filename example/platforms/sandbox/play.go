package sandbox

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/text/encoding/simplifiedchinese"
)

// play is an answer on its way to a client.
type play struct {
	w      http.ResponseWriter
	r      *http.Request
	s      *Server
	answer reply
}

// worded says that the platform has words of its own for the fault.
func (f Fault) worded() bool {
	switch f.Kind {
	case NewCode, SystemError, Throttle, Quota, Token, Maintenance, Signature, Clock, Duplicate:
		return true
	default:
		return false
	}
}

// told is what the client gets to see, for the books.
func (f Fault) told(r reply) string {
	switch f.Kind {
	case Down, Reset:
		return "reset"
	case Cut:
		return "cut"
	case HTML, Garbage:
		return "200 " + string(f.Kind)
	case BadGateway, Unavailable, TimedOut:
		return string(f.Kind)
	default:
		return fmt.Sprintf("%d %s", r.status, r.code)
	}
}

// perform misbehaves as the fault says.
func (p play) perform(f Fault) {
	switch f.Kind {
	case Down:
		p.s.door.shut(f.For)
		p.hangUp(nil)
	case Reset:
		p.hangUp(nil)
	case Cut:
		p.cut()
	case HTML:
		p.write(reply{200, "text/html; charset=utf-8", []byte("<html><body><h1>系统繁忙</h1><p>请稍后再试</p></body></html>"), ""})
	case BadGateway, Unavailable, TimedOut:
		status, _ := strconv.Atoi(string(f.Kind))
		p.write(reply{status, "text/html", fmt.Appendf(nil, "<html><h1>%d %s</h1></html>", status, http.StatusText(status)), ""})
	case Garbage:
		p.write(reply{200, "application/json", garbage(), ""})
	case Hang:
		p.hang(f.For)
	default:
		p.write(p.answer)
	}
}

func (p play) write(r reply) {
	p.w.Header().Set("Content-Type", r.contentType)
	p.w.WriteHeader(r.status)
	_, _ = p.w.Write(r.body)
}

// hangUp sends these bytes as they are, or a reset without any.
func (p play) hangUp(raw []byte) {
	c, _, err := p.w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the connection is gone already
	}
	if raw == nil {
		reset(c)
		return
	}
	_, _ = c.Write(raw)
	_ = c.Close()
}

// cut sends half of the answer that was promised.
func (p play) cut() {
	body := p.answer.body
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", p.answer.contentType, len(body))
	p.hangUp(append([]byte(head), body[:len(body)/2]...))
}

// hang is silent, then answers whoever is still there.
func (p play) hang(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.write(p.answer)
	case <-p.r.Context().Done():
	case <-p.s.door.closed:
		panic(http.ErrAbortHandler)
	}
}

// garbage is an XML document in GBK that ends in the middle of a character.
func garbage() []byte {
	text := chinese(`<?xml version="1.0" encoding="GBK"?><error><message>系统繁忙，请稍后重试`)
	return text[:len(text)-1]
}

// chinese is the text in GBK, which holds GB2312.
func chinese(text string) []byte {
	out, err := simplifiedchinese.GBK.NewEncoder().String(text)
	if err != nil {
		panic("bug: " + err.Error()) // all texts are ours or ASCII
	}
	return []byte(out)
}
