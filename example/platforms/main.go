// Package platforms answers one question: does whatever stands before the platforms deliver each order once?
//
// It runs the sandbox: PDD, TEMU and two suppliers of virtual goods on loopback, with
// faults on demand, and says at the end what really happened. To try it (bash):
//
//	go run ./example/platforms -pdd 127.0.0.1:8601 -a 127.0.0.1:8603 -faults 0 -fails 0
//
// In another shell, a supplier is asked for phone credit (appId demo-app), and the
// shop s1 tells PDD about it once it is delivered, ten seconds later at most
// (client_id demo-app, token demo-token-s1):
//
//	md5() { printf %s "$1" | md5sum | cut -c1-32 | tr a-f A-F; }
//	now=$(date +%s)
//	sign=$(md5 "account=13900000001&amount=5000&appId=demo-app&outOrderId=240101-0001&productId=phone-50&timestamp=$now&key=demo-secret")
//	curl -d "appId=demo-app&outOrderId=240101-0001&productId=phone-50&account=13900000001&amount=5000&timestamp=$now&sign=$sign" http://127.0.0.1:8603/api/order/submit
//	sleep 10
//	sign=$(md5 "demo-secretaccess_tokendemo-token-s1client_iddemo-apporder_sn240101-0001outer_order_snsupplier-a-240101-0001statusSUCCESStimestamp${now}typepdd.virtual.mobile.charge.notifydemo-secret")
//	curl -d "type=pdd.virtual.mobile.charge.notify&client_id=demo-app&access_token=demo-token-s1&timestamp=$now&order_sn=240101-0001&outer_order_sn=supplier-a-240101-0001&status=SUCCESS&sign=$sign" http://127.0.0.1:8601/api/router
//	curl 'http://127.0.0.1:8601/books?order=240101-0001'
//
// The same curl once more is refused, and the books say so. /books lists what one
// platform knows, /books?all what all of them know; POST /token?shop=s1 gives a shop
// of PDD or TEMU a new token. -seed and -faults 0.2 make them misbehave, in the same
// way each time; -kinds says how, with names such as reset/executed. Ctrl-C ends it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"retryproxy/example/platforms/sandbox"
)

// options are the flags.
type options struct {
	pdd, temu, a, b    string
	seed               uint64
	rate, fails        float64
	kinds              string
	window, skew       time.Duration
	hidden, every      time.Duration
	orders, shops, qps int
	repeats            string
	quotas             map[string]int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "platforms:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	books := sandbox.NewBooks()
	servers, err := o.start(books)
	defer func() {
		for _, s := range servers {
			_ = s.Close()
		}
	}()
	if err != nil {
		return err
	}
	for _, s := range servers {
		fmt.Fprintf(out, "%-10s http://%s  (books: /books)\n", s.Name(), s.Address())
	}
	<-ctx.Done()
	books.Read(time.Now()).Summary(out)
	return nil
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{quotas: map[string]int{}}
	f := flag.NewFlagSet("platforms", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.pdd, "pdd", "127.0.0.1:8601", "`address` of PDD")
	f.StringVar(&o.temu, "temu", "127.0.0.1:8602", "`address` of TEMU")
	f.StringVar(&o.a, "a", "127.0.0.1:8603", "`address` of supplier A (JSON)")
	f.StringVar(&o.b, "b", "127.0.0.1:8604", "`address` of supplier B (XML in GB2312)")
	f.Uint64Var(&o.seed, "seed", 1, "the same seed gives the same faults")
	f.Float64Var(&o.rate, "faults", 0.2, "share of requests that meet a fault")
	f.Float64Var(&o.fails, "fails", 0.05, "share of accepted orders that fail in the end")
	f.StringVar(&o.kinds, "kinds", "all", "the faults, separated by commas")
	f.DurationVar(&o.window, "window", 0, "how far a timestamp may be off (default: PDD 10m, TEMU 5m, supplier A 4m)")
	f.DurationVar(&o.skew, "skew", 0, "how far their clocks are ahead")
	f.Func("quota", "`operation=n` requests a day and shop, such as pdd.waybill.get=100; may be repeated", o.quota)
	f.DurationVar(&o.hidden, "hidden", 10*time.Second, "until a supplier finds an accepted order when queried")
	f.DurationVar(&o.every, "query-every", 5*time.Second, "how often a supplier may be queried for one order")
	f.StringVar(&o.repeats, "repeats", "", "what suppliers do with an order number they know: refuse (the default), after_failure or accept")
	f.IntVar(&o.orders, "orders", 1000, "orders that wait at PDD and TEMU")
	f.IntVar(&o.shops, "shops", 3, "shops, named s1, s2, …")
	f.IntVar(&o.qps, "rate", 0, "requests a second (default: PDD 100 per shop, TEMU 20, suppliers 100)")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.repeats == "refuse" {
		o.repeats = ""
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("what is %q?", f.Arg(0))
	case o.shops < 1 || o.orders < 0 || o.orders > 100_000:
		return nil, errors.New("-shops must be at least 1, -orders from 0 to 100000")
	case o.rate < 0 || o.rate > 1 || o.fails < 0 || o.fails > 1:
		return nil, errors.New("-faults and -fails must be from 0 to 1")
	case o.repeats != "" && o.repeats != string(sandbox.AfterFailure) && o.repeats != string(sandbox.Accept):
		return nil, fmt.Errorf("-repeats %q: must be refuse, after_failure or accept", o.repeats)
	}
	return o, nil
}

// quota reads operation=n.
func (o *options) quota(text string) error {
	operation, n, _ := strings.Cut(text, "=")
	most, err := strconv.Atoi(n)
	if err != nil || most < 0 || operation == "" {
		return errors.New("must be like pdd.waybill.get=100")
	}
	o.quotas[operation] = most
	return nil
}

// start starts all four; those that did are given back even when one did not.
func (o *options) start(books *sandbox.Books) (servers []*sandbox.Server, err error) {
	kinds, err := sandbox.ParseFaults(o.kinds)
	if err != nil {
		return nil, err
	}
	mix := sandbox.Mix{Rate: o.rate, Faults: kinds, Fails: o.fails, Least: time.Second, Last: 10 * time.Second}
	tokens, shops := map[string]string{}, make([]string, o.shops)
	for i := range shops {
		shops[i] = fmt.Sprintf("s%d", i+1)
		tokens[shops[i]] = "demo-token-" + shops[i]
	}
	common := func(addr string) sandbox.Options {
		return sandbox.Options{Addr: addr, Books: books, Script: sandbox.Dice(o.seed, mix), Window: o.window, Skew: o.skew, Quotas: o.quotas, Rate: float64(o.qps)}
	}
	supplier := func(addr string) sandbox.Supplier {
		return sandbox.Supplier{Options: common(addr), Hidden: o.hidden, QueryEvery: o.every, Repeats: sandbox.Repeats(o.repeats)}
	}
	sales := sandbox.Sales(o.orders, shops...)
	for _, start := range []func() (*sandbox.Server, error){
		func() (*sandbox.Server, error) {
			return sandbox.StartPDD(sandbox.PDD{Options: common(o.pdd), Tokens: tokens, Orders: sales})
		},
		func() (*sandbox.Server, error) {
			return sandbox.StartTEMU(sandbox.TEMU{Options: common(o.temu), Tokens: tokens, Orders: sales, Stock: map[int64]int{17000000000001: 100}})
		},
		func() (*sandbox.Server, error) { return sandbox.StartSupplierA(supplier(o.a)) },
		func() (*sandbox.Server, error) { return sandbox.StartSupplierB(supplier(o.b)) },
	} {
		s, err := start()
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}
