package egress_test

import (
	"errors"
	"fmt"

	"retryproxy/egress"
)

func ExampleTable_Way() {
	fixed := egress.Proxy{Scheme: "socks5", Host: "10.0.0.1", Port: 1080, User: "bot", Password: "secret"}
	session := egress.Proxy{Scheme: "http", Host: "gate.test", Port: 8000, User: "user-session-{shop}", Password: "secret"}
	table, err := egress.NewTable(egress.Config{
		Rules: []egress.Rule{
			{Name: "proxy-a", Proxies: []egress.Proxy{fixed}},
			{Name: "scan", Match: egress.Match{TaskType: []string{"scan"}}, Proxies: []egress.Proxy{session}},
		},
		Shops: map[string]string{"s17": "proxy-a"},
		Deny:  true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, call := range []struct{ shop, task string }{{"s17", "scan"}, {"s18", "scan"}, {"", "scan"}, {"s18", "order_ship"}} {
		way, err := table.Way(call.shop, call.task, "gw-api.pinduoduo.com:443")
		if errors.Is(err, egress.ErrDenied) {
			fmt.Println(err)
			continue
		}
		fmt.Println(way.Exits[0].Name())
	}
	// Output:
	// proxy-a (10.0.0.1:1080)
	// scan (gate.test:8000, shop s18)
	// egress: denied: egress rule "scan" names {shop} and the call has none
	// egress: denied: egress_default is deny and no egress rule is meant for this call
}
