package dashboard

import "time"

// client is who calls through the proxy.
type client struct {
	Client     string         `json:"client"`
	Agent      string         `json:"user_agent"`
	Modes      map[string]int `json:"modes"`
	Calls      int            `json:"calls"`
	Tunnels    int            `json:"tunnels"`
	NoShop     int            `json:"no_shop"`
	NoTask     int            `json:"no_task_type"`
	OwnRetries int            `json:"own_retries"`
	Failures   int            `json:"failures"`
	Patience   int64          `json:"patience_p50_ms"`
	Advice     []advice       `json:"advice"`
}

// advice is a finding and the line that mends it.
type advice struct {
	Finding string `json:"finding"`
	Fix     string `json:"fix"`
}

type coverageView struct {
	Since   time.Time `json:"since"`
	Calls   int       `json:"calls"`
	Tunnels int       `json:"tunnels"`
	NoShop  int       `json:"no_shop"`
	NoTask  int       `json:"no_task_type"`
	Clients []client  `json:"clients"`
	Advice  []advice  `json:"advice"`
}

func fillCoverage(v *visit) (any, error) {
	var out coverageView
	err := v.get("/api/v1/coverage", &out)
	return out, err
}
