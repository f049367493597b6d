// Package otel tells OpenTelemetry of locks: spans of each wait and each hold, and measures of both.
//
//	observer, err := otel.New(otelapi.GetTracerProvider(), otelapi.GetMeterProvider())
//	locks, err := leasehold.New(client, &leasehold.Settings{OnEvent: observer.Tell})
//
// Measures have the name of a lock as an attribute only if [WithNames] says how it is to be told: a name for each user is a
// series for each user.
package otel

import (
	"errors"
	"sync"

	leasehold "example.org/leasehold/clients/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const scope = "example.org/leasehold/clients/go/otel"

// An Observer is told of events.
type Observer struct {
	tracer trace.Tracer
	nameOf func(lock string) string

	waits, holds metric.Float64Histogram
	lost         metric.Int64Counter
	held         metric.Int64UpDownCounter

	mu sync.Mutex
	// spans are those that have begun, by request.
	spans map[int64]trace.Span
}

// An Option is a way to tell.
type Option func(*Observer)

// WithNames has measures told by a part of the name of the lock, such as what comes before the first colon.
func WithNames(nameOf func(lock string) string) Option {
	return func(o *Observer) { o.nameOf = nameOf }
}

// New returns an observer that tells these providers.
func New(traces trace.TracerProvider, measures metric.MeterProvider, opts ...Option) (*Observer, error) {
	o := &Observer{tracer: traces.Tracer(scope), spans: map[int64]trace.Span{}, nameOf: func(string) string { return "" }}
	for _, option := range opts {
		option(o)
	}
	meter := measures.Meter(scope)
	var failures [4]error
	o.waits, failures[0] = meter.Float64Histogram("leasehold.wait", metric.WithUnit("s"),
		metric.WithDescription("How long a lock was waited for until it was granted or refused"))
	o.holds, failures[1] = meter.Float64Histogram("leasehold.hold", metric.WithUnit("s"),
		metric.WithDescription("How long a lock was held"))
	o.lost, failures[2] = meter.Int64Counter("leasehold.lost", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that were lost before they were released"))
	o.held, failures[3] = meter.Int64UpDownCounter("leasehold.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held by this program"))
	return o, errors.Join(failures[:]...)
}

// Tell is the OnEvent of [leasehold.Settings].
func (o *Observer) Tell(event leasehold.Event) {
	ctx := event.Context
	attrs := []attribute.KeyValue{}
	if name := o.nameOf(event.Name); name != "" {
		attrs = append(attrs, attribute.String("leasehold.lock", name))
	}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(append(attrs, more...)...)
	}
	outcome := attribute.String("leasehold.outcome", outcomeOf(event))
	switch event.Step {
	case leasehold.StepAsked:
		o.begin(event, "leasehold.wait")
	case leasehold.StepQueued:
		o.note(event)
	case leasehold.StepGranted:
		o.waits.Record(ctx, event.After.Seconds(), with(outcome))
		o.held.Add(ctx, 1, with())
		o.end(event)
		o.begin(event, "leasehold.hold")
	case leasehold.StepRefused:
		o.waits.Record(ctx, event.After.Seconds(), with(outcome))
		o.end(event)
	case leasehold.StepRenewed:
		o.note(event)
	case leasehold.StepLost:
		o.lost.Add(ctx, 1, with(outcome))
		o.over(event, with(outcome), with())
	case leasehold.StepReleased:
		o.over(event, with(outcome), with())
	}
}

// over: a lock that was lost is released after that, and is held only once.
func (o *Observer) over(event leasehold.Event, as, plain metric.MeasurementOption) {
	if o.end(event) {
		o.holds.Record(event.Context, event.After.Seconds(), as)
		o.held.Add(event.Context, -1, plain)
	}
}

func (o *Observer) begin(event leasehold.Event, name string) {
	_, span := o.tracer.Start(event.Context, name, trace.WithAttributes(
		attribute.String("leasehold.lock", event.Name), attribute.String("leasehold.owner", event.Owner),
		attribute.Int64("leasehold.fence", event.Fence)))
	o.mu.Lock()
	o.spans[event.Request] = span
	o.mu.Unlock()
}

func (o *Observer) note(event leasehold.Event) {
	o.mu.Lock()
	span := o.spans[event.Request]
	o.mu.Unlock()
	if span != nil {
		span.AddEvent(string(event.Step))
	}
}

func (o *Observer) end(event leasehold.Event) bool {
	o.mu.Lock()
	span := o.spans[event.Request]
	delete(o.spans, event.Request)
	o.mu.Unlock()
	if span == nil {
		return false
	}
	span.SetAttributes(attribute.String("leasehold.outcome", outcomeOf(event)))
	if event.Err != nil {
		span.RecordError(event.Err)
		span.SetStatus(codes.Error, event.Err.Error())
	}
	span.End()
	return true
}

func outcomeOf(event leasehold.Event) string {
	switch {
	case event.Outcome != "":
		return event.Outcome
	case event.Step == leasehold.StepRefused && event.Err == nil:
		return "busy"
	case event.Err != nil:
		return "error"
	}
	return string(event.Step)
}
