package tracing

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
)

// Collector is where spans are sent by OTLP. What it leaves empty is said by the usual
// environment variables (OTEL_EXPORTER_OTLP_…), and by the defaults of the SDK.
type Collector struct {
	Endpoint string            // base URL: http:// or https://
	Protocol string            // http (protobuf) or grpc
	Headers  map[string]string // of each request
	Log      *slog.Logger      // hears of failures, at most once a minute
}

// FromEnvironment says whether the usual environment variables ask for traces, by which
// protocol, and whether they forbid them whatever the configuration says.
func FromEnvironment(getenv func(string) string) (on, forbidden bool, protocol string) {
	protocol = "http"
	if orElse(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL")) == "grpc" {
		protocol = "grpc"
	}
	on = getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
	forbidden = strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none"
	return on, forbidden, protocol
}

// Open makes a processor that sends spans in the background. It does not wait for the
// collector; while that is down, as many spans as the queue of the SDK takes are kept, and
// the rest are dropped.
func Open(ctx context.Context, c *Collector) (sdk.SpanProcessor, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	told := &teller{log: c.Log}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { told.tell(err, 0) })) // of what the exporters say beside their errors
	return sdk.NewBatchSpanProcessor(patient{exporter, told}), nil
}

// client speaks to the collector directly: the environment's HTTP_PROXY may well be us.
func (c *Collector) client() (otlptrace.Client, error) {
	if c.Protocol == "grpc" {
		options := []otlptracegrpc.Option{otlptracegrpc.WithDialOption(grpc.WithNoProxy())}
		if c.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(c.Endpoint))
		}
		if len(c.Headers) > 0 {
			options = append(options, otlptracegrpc.WithHeaders(c.Headers))
		}
		return otlptracegrpc.NewClient(options...), nil
	}
	options := []otlptracehttp.Option{otlptracehttp.WithProxy(func(*http.Request) (*url.URL, error) { return nil, nil })}
	if c.Endpoint != "" {
		at, err := url.Parse(c.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("tracing.endpoint: %w", err)
		}
		if at.Path == "" || at.Path == "/" {
			at.Path = "/v1/traces"
		}
		options = append(options, otlptracehttp.WithEndpointURL(at.String()))
	}
	if len(c.Headers) > 0 {
		options = append(options, otlptracehttp.WithHeaders(c.Headers))
	}
	return otlptracehttp.NewClient(options...), nil
}

// Resource says whose spans they are. What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
// say comes first.
func Resource(ctx context.Context, service, version string) (*resource.Resource, error) {
	res, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", service), attribute.String("service.version", version), attribute.String("service.instance.id", rand.Text())),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return res, nil
}

// patient is an exporter whose failures are told now and then.
type patient struct {
	sdk.SpanExporter
	told *teller
}

// ExportSpans implements sdk.SpanExporter.
func (p patient) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := p.SpanExporter.ExportSpans(ctx, spans); err != nil {
		p.told.tell(err, len(spans))
	}
	return nil
}

// tellEvery is how often failures are told at most.
const tellEvery = time.Minute

// teller logs failures, at most once in tellEvery.
type teller struct {
	log  *slog.Logger
	mu   sync.Mutex
	lost int // spans, since it was told
	next time.Time
}

func (t *teller) tell(err error, spans int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost += spans
	now := time.Now()
	if now.Before(t.next) {
		return
	}
	t.log.Warn("traces cannot be sent", "error", err.Error(), "spans_lost", t.lost)
	t.lost, t.next = 0, now.Add(tellEvery)
}
