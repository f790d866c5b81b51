package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestProgram(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, strings.Fields("-pdd 127.0.0.1:0 -temu 127.0.0.1:0 -a 127.0.0.1:0 -b 127.0.0.1:0 -faults 0 -quota pdd.waybill.get=1"), out, io.Discard)
		_ = out.Close()
	}()
	lines := bufio.NewScanner(in)
	for _, name := range []string{"pdd", "temu", "supplier-a", "supplier-b"} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), name) {
			t.Fatalf("line = %q, want %s", lines.Text(), name)
		}
		res, err := http.Get(strings.Fields(lines.Text())[1] + "/nowhere")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	stop()
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	if err := <-done; err != nil {
		t.Errorf("run() = %v, want nil", err)
	}
	for _, want := range []string{"pdd: 1 requests\n", "supplier-b: 1 requests\n", "orders: 0, delivered once 0, wrong 0\n"} {
		if !strings.Contains(rest, want) {
			t.Errorf("summary = %q, want %q in it", rest, want)
		}
	}
}

func TestFlagsThatCannotBe(t *testing.T) {
	for _, args := range []string{"-faults 2", "-fails -1", "-shops 0", "-orders -1", "-repeats maybe", "-kinds x", "-quota pdd.waybill.get", "-quota =1", "x", "-pdd 127.0.0.1:x"} {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := run(ctx, strings.Fields(args), io.Discard, io.Discard); err == nil {
			t.Errorf("run(%s) = nil, want an error", args)
		}
	}
}
