package dashboard

import "time"

// breakers are those of hosts, shops and egress proxies (GET /api/v1/breakers).
type breakers struct {
	Hosts  []hostView `json:"hosts"`
	Shops  []trip     `json:"shops"`
	Egress []exitView `json:"egress"`
}

// hostView is the breaker and the gate of one host.
type hostView struct {
	Host     string    `json:"host"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Row      int       `json:"consecutive_failures"`
	Calls    int       `json:"calls"`
	Failures int       `json:"failures"`
	Probes   int       `json:"probes"`
	InFlight int       `json:"in_flight"`
	Backlog  int       `json:"in_flight_backlog"`
	Limit    int       `json:"limit"`
	Capacity int       `json:"capacity"`
	Waiting  int       `json:"waiting"`
	Late     int       `json:"waiting_backlog"`
	Longest  int64     `json:"waiting_longest_ms"`
	Planned  int       `json:"planned"`
	Outage   *struct {
		Since   time.Time `json:"since"`
		Reach   string    `json:"reach"`
		Waiting int       `json:"waiting"`
		Most    int       `json:"waiting_most"`
		GaveUp  int       `json:"gave_up"`
		Release time.Time `json:"expected_release"`
	} `json:"outage"`
}

type exitView struct {
	Name   string    `json:"name"`
	State  string    `json:"state"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Row    int       `json:"consecutive_failures"`
}
