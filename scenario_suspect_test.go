package main

import (
	"bytes"
	"compress/gzip"
	"testing"
)

// packed is a text as gzip codes it.
func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // to memory
	_ = w.Close()
	return b.String()
}

// What a platform says it may say compressed: a failure that we could not read
// would be stored as the order's success, and given to every repeat.
func TestSuspectBodiesMayBeCompressed(t *testing.T) {
	const (
		js    = "Content-Type: application/json;charset=UTF-8"
		gz    = "Content-Encoding: gzip"
		fails = `{"success":false,"errorCode":4000004,"errorMsg":"rate limit"}`
		temu  = `{"success":true,"requestId":"1","errorCode":1000000,"errorMsg":"","result":{"orderSn":"7"}}`
		pdd   = `{"error_response":{"error_msg":"busy","error_code":50001},"success":true}`
	)
	for _, tt := range []struct {
		name    string
		answers step
		suspect bool
	}{
		{"failure", answer(200, fails, js), true},
		{"failure, packed", answer(200, packed(fails), js, gz), true},
		{"TEMU's success", answer(200, temu, js), false},
		{"TEMU's success, packed", answer(200, packed(temu), js, gz), false},
		{"error_response beside success", answer(200, packed(pdd), js, gz), true},
		{"packed, and no gzip", answer(200, fails, js, gz), false},
		{"a coding that we cannot read", answer(200, fails, js, "Content-Encoding: br"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream(platform+":80", tt.answers)
				first := r.post(orders, "{}", keyed, "Accept-Encoding: gzip")
				r.want(first, 200, u, 1)
				again := r.post(orders, "{}", keyed, "Accept-Encoding: gzip")
				r.wantBody(again, first.Body) // untouched
				sent, replayed, reason := 1, "true", "status_200"
				if tt.suspect {
					sent, replayed, reason = 2, "", "suspect"
				}
				r.want(again, 200, u, sent)
				r.wantHeader(again, "Idempotency-Replayed", replayed)
				r.wantMetric(float64(sent), "attempts_total", "reason="+reason)
			})
		})
	}
}
