package otel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"example.org/leasehold/clients/go/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestWaitsAndHoldsAreToldOf(t *testing.T) {
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	family := func(lock string) string {
		before, _, _ := strings.Cut(lock, ":")
		return before
	}
	observer, err := otel.New(trace.NewTracerProvider(trace.WithSpanProcessor(spans)),
		metric.NewMeterProvider(metric.WithReader(reader)), otel.WithNames(family))
	if err != nil {
		t.Fatal(err)
	}
	tell := func(request int64, owner string, step leasehold.Step, outcome string, err error) {
		observer.Tell(leasehold.Event{Context: t.Context(), Step: step, Request: request, Name: "seat:12A", Owner: owner, After: time.Second, Outcome: outcome, Err: err})
	}
	tell(1, "a", leasehold.StepAsked, "", nil)
	tell(1, "a", leasehold.StepQueued, "", nil)
	// Each try of a quorum has another owner.
	tell(1, "b", leasehold.StepGranted, "", nil)
	tell(1, "b", leasehold.StepLost, "taken", errors.New("lost"))
	tell(1, "b", leasehold.StepReleased, "late", nil)
	tell(2, "b", leasehold.StepAsked, "", nil)
	tell(2, "b", leasehold.StepRefused, "", nil)
	var names []string
	for _, span := range spans.Ended() {
		names = append(names, span.Name())
	}
	if strings.Join(names, " ") != "leasehold.wait leasehold.hold leasehold.wait" {
		t.Fatal(names)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	for _, each := range all.ScopeMetrics[0].Metrics {
		switch data := each.Data.(type) {
		case metricdata.Sum[int64]:
			want := map[string]int64{"leasehold.lost": 1, "leasehold.held": 0}[each.Name]
			if data.DataPoints[0].Value != want {
				t.Error(each.Name, data.DataPoints[0].Value)
			}
		case metricdata.Histogram[float64]:
			if family, _ := data.DataPoints[0].Attributes.Value("leasehold.lock"); family.AsString() != "seat" {
				t.Error(each.Name, family)
			}
		}
	}
}
