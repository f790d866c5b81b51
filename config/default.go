package config

import (
	"net/netip"
	"time"
)

// Default is the built-in configuration, what config.yaml spells out.
func Default() *Config {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	return &Config{
		Instance:       "retryproxy",
		Listen:         Listen{Proxy: "127.0.0.1:8080", Admin: "127.0.0.1:9090"},
		Clients:        Clients{Allow: loopback, Trusted: loopback},
		Destinations:   Destinations{Private: "auto", ConnectPorts: []int{443, 80}},
		Headers:        defaultHeaders(),
		UpgradeToHTTPS: []string{"gw-api.pinduoduo.com"},
		EgressDefault:  "direct",
		RetryPolicies:  defaultPolicies(),
		Timezone:       "Local",
		Retries:        Retries{Default: "on"},
		RetryLimits: RetryLimits{
			Global: mustRate("300/m", 0.2), TaskType: mustRate("50/m", 0.2), Shop: mustRate("5/m", 0.2),
		},
		Slots: Slots{
			MaxInFlight: 256, Adaptive: true, RetryShare: 0.3, BacklogShare: 0.1,
			Ramp: 5 * time.Second, MaxWait: 30 * time.Second, MaxWaiting: 10000,
		},
		Breakers: Breakers{
			Host: HostBreaker{
				ConsecutiveFailures: 5, FailureRatio: 0.5, MinCalls: 20, Window: 10 * time.Second,
				Open: 500 * time.Millisecond, OpenMax: 5 * time.Second, Probes: 1,
			},
			Shop: ShopBreaker{IdenticalFailures: 3, ProbeEvery: 30 * time.Second},
		},
		Idempotency: Idempotency{TTL: 24 * time.Hour, Entries: 100000, Bytes: 64 << 20, MaxResponse: 1 << 20},
		Body: Body{
			Memory: 256 << 10, Limit: 64 << 20, Over: "stream", Hold: 64 << 10, InspectMax: 1 << 20,
			MemoryTotal: 256 << 20, DiskTotal: 4 << 30,
		},
		Limits:  Limits{HeaderTimeout: 10 * time.Second, HeaderBytes: 64 << 10, Connections: 10000, TunnelIdle: 10 * time.Minute},
		Store:   Store{Kind: "memory", Durability: "full"},
		History: History{Keep: 30 * 24 * time.Hour, Calls: 1_000_000}, DeadLetters: DeadLetters{Keep: 30 * 24 * time.Hour, Max: 10000},
		Tracing: Tracing{Protocol: "http", Sample: 1},
		Drain:   25 * time.Second,
		Log:     Log{Level: "info", Format: "auto", MaxSize: 100 << 20, Keep: 7},
		zone:    time.Local,
	}
}

func defaultHeaders() Headers {
	return Headers{
		IdempotencyKey: Names{"X-Idempotency-Key", "Idempotency-Key"},
		RetryCount:     "X-Retry-Count",
		Shop:           "X-Shop-Id",
		ShopTier:       "X-Shop-Tier",
		TaskType:       "X-Task-Type",
		Timeout:        "X-Request-Timeout",
		Via:            true,
	}
}

// defaultPolicies are the policies of a shop that ships orders, uploads and
// reports; `default` is last.
func defaultPolicies() Policies {
	base := basePolicy()
	with := func(name string, match Match, retries int, delay, most time.Duration, multiplier float64) Policy {
		p := base
		p.Name, p.Match, p.MaxRetries = name, match, retries
		p.BaseDelay, p.MaxDelay, p.Multiplier = delay, most, multiplier
		return p
	}
	ship, bulk := Patterns{"order_ship"}, Patterns{"bulk_upload"}
	report := with("report", Match{TaskType: Patterns{"report"}}, 3, 10*time.Second, 300*time.Second, 2.5)
	report.Deadline = 15 * time.Minute
	return Policies{
		with("order_ship_vip", Match{TaskType: ship, ShopTier: Patterns{"vip"}}, 5, time.Second, 30*time.Second, 1.5),
		with("order_ship", Match{TaskType: ship}, 3, 2*time.Second, 30*time.Second, 1.5),
		with("bulk_upload_night", Match{TaskType: bulk, HourRange: Hours{{From: 2, To: 6}}}, 1, 10*time.Second, 120*time.Second, 1),
		with("bulk_upload", Match{TaskType: bulk}, 3, 5*time.Second, 120*time.Second, 2),
		report,
		base,
	}
}

// basePolicy is the built-in `default`.
func basePolicy() Policy {
	return Policy{
		Name:              defaultPolicy,
		MaxRetries:        3,
		BaseDelay:         time.Second,
		MaxDelay:          60 * time.Second,
		Multiplier:        2,
		Jitter:            "random",
		JitterRatio:       0.2,
		FirstRetry:        "backoff",
		ConnectTimeout:    5 * time.Second,
		PerTryTimeout:     15 * time.Second,
		BodyIdleTimeout:   30 * time.Second,
		Deadline:          5 * time.Minute,
		RetryStatuses:     Statuses{"408", "425", "429", "5xx"},
		PermanentStatuses: Statuses{"501", "505", "506", "508", "510", "511"},
		NotNowStatuses:    Statuses{"408", "425", "429", "503"},
		HonourRetryAfter:  true,
		RetryAfterCap:     120 * time.Second,
		RetryAfterOverCap: "cap",
		Safe:              "auto",
		SafeMethods:       []string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"},
		OnUnknown:         "manual_review",
		OnOpen:            "wait",
		OnPark:            202,
		ForwardHeaders:    []string{"idempotency_key", "retry_count"},
		DeadLetter:        "unsafe",
		Priority:          5,
		index:             builtin,
	}
}
