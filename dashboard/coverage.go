package dashboard

import (
	"math"
	"time"
)

// client is who calls through the proxy.
type client struct {
	Client     string         `json:"client"`
	Agents     []string       `json:"user_agents"`
	Modes      map[string]int `json:"modes"`
	Calls      int            `json:"calls"`
	Opaque     float64        `json:"opaque_share"`
	NoShop     float64        `json:"no_shop_share"`
	NoTask     float64        `json:"no_task_share"`
	OwnRetries int            `json:"own_retries"`
	Patience   int64          `json:"patience_p50_ms"`
	Advice     []advice       `json:"advice"`
}

// advice is a finding and the lines that mend it.
type advice struct {
	ID      string `json:"id"`
	Finding string `json:"finding"`
	Why     string `json:"why"`
	Fix     []struct {
		Into string `json:"into"`
		Line string `json:"line"`
	} `json:"fix"`
}

type coverageView struct {
	Since   time.Time `json:"since"`
	Clients []client  `json:"clients"`

	// Of all clients that are listed; the labels of those calls that are no opaque tunnels.
	Calls, Tunnels, Seen, NoShop, NoTask int
}

func fillCoverage(v *visit) (any, error) {
	var out coverageView
	err := v.get("/api/v1/coverage", &out)
	for i := range out.Clients {
		c := &out.Clients[i]
		tunnels := ofShare(c.Opaque, c.Calls)
		seen := c.Calls - tunnels
		out.Calls, out.Tunnels, out.Seen = out.Calls+c.Calls, out.Tunnels+tunnels, out.Seen+seen
		out.NoShop, out.NoTask = out.NoShop+ofShare(c.NoShop, seen), out.NoTask+ofShare(c.NoTask, seen)
	}
	return out, err
}

// ofShare is the number that a share of n stands for.
func ofShare(share float64, n int) int { return int(math.Round(share * float64(n))) }
