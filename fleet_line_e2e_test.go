//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/internal/redistest"
)

// asks sends a request to the admin side of a process.
func asks(t *testing.T, method string, port int, path, body string, out any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("http://127.0.0.1:%d/api/v1%s", port, path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if out != nil && json.Unmarshal(text, out) != nil {
		t.Errorf("%s %s = %d %s", method, path, res.StatusCode, text)
	}
	return res.StatusCode
}

// What one replica parked, any of them counts, expedites and cancels; once.
func TestE2EFleetSharesTheLine(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if seen.Add(1) <= 2 {
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer s.Close()
	redis, ports := redistest.Start(t), [2]int{freePort(t), freePort(t)}
	var fleet [2]*process
	for i, port := range ports {
		config := strings.Replace(fmt.Sprintf(fleetConfig, redis.URL(), noLimits, "blind.test"), `admin: ""`, fmt.Sprintf(`admin: "127.0.0.1:%d"`, port), 1)
		config = strings.Replace(config, "name: default,", "name: default, retry_after_over_cap: park,", 1)
		fleet[i] = runBinary(t, filepath.Join(t.TempDir(), "c.yaml"), port, config)
	}
	for _, key := range []string{"k1", "k2"} {
		if got, err := fleet[0].order(s.URL, key, "x"); err != nil || got.status != 202 {
			t.Fatalf("%s = %v, %v, want it parked", key, got, err)
		}
	}
	var calls []struct{ ID string }
	asks(t, "GET", ports[1], "/calls?state=parked", "", &calls)
	var line struct {
		ByCause map[string][]int `json:"by_cause"`
	}
	asks(t, "GET", ports[1], "/calls/waiting/histogram", "", &line)
	n := 0
	for _, parked := range line.ByCause["parked"] {
		n += parked
	}
	if len(calls) != 2 || n != 2 {
		t.Fatalf("the other replica lists %d parked calls and counts %d, want both", len(calls), n)
	}
	by := `{"by":"li"}`
	if status := asks(t, "POST", ports[1], "/calls/"+calls[0].ID+"/expedite", by, nil); status != 200 {
		t.Errorf("expedite by the other replica = %d", status)
	}
	if status := asks(t, "POST", ports[1], "/calls/"+calls[1].ID+"/cancel", by, nil); status != 200 {
		t.Errorf("cancel by the other replica = %d", status)
	}
	if status := asks(t, "POST", ports[0], "/calls/"+calls[1].ID+"/cancel", by, nil); status != 404 {
		t.Errorf("cancel once more by the first = %d, want 404", status)
	}
	var left []struct{ ID string }
	for end := time.Now().Add(10 * time.Second); seen.Load() < 3 && time.Now().Before(end); {
		asks(t, "GET", ports[0], "/calls?state=parked", "", &left)
	}
	if asks(t, "GET", ports[0], "/calls?state=parked", "", &left); seen.Load() != 3 || len(left) != 0 {
		t.Errorf("%d requests, %d calls are parked, want one more request and none", seen.Load(), len(left))
	}
}
