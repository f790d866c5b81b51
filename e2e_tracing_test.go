package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// otlpCollector is an OTLP collector that keeps what it gets, by HTTP and by gRPC.
type otlpCollector struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	got   []*otlp.ResourceSpans
	token []string // of each request
}

func (c *otlpCollector) take(token string, req *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got, c.token = append(c.got, req.ResourceSpans...), append(c.token, token)
}

// ServeHTTP takes OTLP over HTTP.
func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &req) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.take(r.Header.Get("X-Token"), &req)
}

// Export takes OTLP over gRPC.
func (c *otlpCollector) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	c.take(strings.Join(md.Get("x-token"), ","), req)
	return &collector.ExportTraceServiceResponse{}, nil
}

// The spans of calls reach a real collector, the last ones while the proxy shuts down; when
// it is away, calls and shutdown go on.
func TestSpansReachACollector(t *testing.T) {
	up := cannedUpstream(t)
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := &otlpCollector{}
			endpoint := c.serve(t, protocol)
			t.Run("served", func(t *testing.T) { // it shuts down at the end
				addr := benchProxy(t, "instance: shop-proxy", "tracing: {endpoint: '"+endpoint+"', protocol: "+protocol+", headers: {X-Token: hush}}")
				client := benchClient(t, addr)
				defer client.Close()
				benchCall(t, client, benchRequest("GET", up, inTrace+"\r\n", ""), make([]byte, 4096))
			})
			c.check(t)
		})
	}
}

// serve is the address of the collector.
func (c *otlpCollector) serve(t *testing.T, protocol string) string {
	if protocol == "http" {
		server := httptest.NewServer(c)
		t.Cleanup(server.Close)
		return server.URL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return "http://" + l.Addr().String()
}

// check wants the two spans of one call.
func (c *otlpCollector) check(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) != 1 || len(c.token) != 1 || c.token[0] != "hush" || len(c.got[0].ScopeSpans) != 1 {
		t.Fatalf("the collector got %v with %q, want the spans of one resource, once", c.got, c.token)
	}
	said := map[string]string{}
	for _, a := range c.got[0].Resource.Attributes {
		said[a.Key] = a.Value.GetStringValue()
	}
	if said["service.name"] != "shop-proxy" || said["service.version"] == "" || said["service.instance.id"] == "" {
		t.Errorf("the resource is %v, want name, version and id of the instance", said)
	}
	byKind := map[otlp.Span_SpanKind]*otlp.Span{}
	for _, s := range c.got[0].ScopeSpans[0].Spans {
		byKind[s.Kind] = s
	}
	server, client := byKind[otlp.Span_SPAN_KIND_SERVER], byKind[otlp.Span_SPAN_KIND_CLIENT]
	if len(byKind) != 2 || server == nil || client == nil {
		t.Fatalf("spans %v, want one of a server and one of a client", byKind)
	}
	if string(client.ParentSpanId) != string(server.SpanId) || string(client.TraceId) != string(server.TraceId) || server.EndTimeUnixNano <= server.StartTimeUnixNano {
		t.Errorf("spans %v and %v, want the attempt below the call", server, client)
	}
}

// A collector that is away, or hangs, changes nothing for calls.
func TestCallsDoNotNeedTheCollector(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	up := cannedUpstream(t)
	for name, at := range map[string]string{"hangs": hangs.Addr().String(), "away": gone.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			client := benchClient(t, benchProxy(t, "tracing: {endpoint: 'http://"+at+"'}", "drain: 1s"))
			defer client.Close()
			buf := make([]byte, 4096)
			for range 3000 { // more spans than are kept
				benchCall(t, client, benchRequest("GET", up, "", ""), buf)
			}
		})
	}
}

// The environment alone turns tracing on, and off whatever the file says.
func TestTracingByTheEnvironment(t *testing.T) {
	up := cannedUpstream(t)
	for name, tt := range map[string]struct {
		file bool
		env  map[string]string
		want bool
	}{
		"nothing":              {false, nil, false},
		"endpoint":             {false, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL"}, true},
		"endpoint, traces":     {false, map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "URL/v1/traces"}, true},
		"disabled":             {true, map[string]string{"OTEL_SDK_DISABLED": "true"}, false},
		"another exporter":     {true, map[string]string{"OTEL_TRACES_EXPORTER": "none"}, false},
		"the file comes first": {true, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &otlpCollector{}
			url := c.serve(t, "http")
			for key, value := range tt.env {
				t.Setenv(key, strings.ReplaceAll(value, "URL", url))
			}
			var settings []string
			if tt.file {
				settings = []string{"tracing: {endpoint: '" + url + "'}"}
			}
			t.Run("served", func(t *testing.T) {
				client := benchClient(t, benchProxy(t, settings...))
				defer client.Close()
				benchCall(t, client, benchRequest("GET", up, "", ""), make([]byte, 4096))
			})
			c.mu.Lock()
			defer c.mu.Unlock()
			if (len(c.got) > 0) != tt.want {
				t.Errorf("the collector got %v, want something: %v", c.got, tt.want)
			}
		})
	}
}
