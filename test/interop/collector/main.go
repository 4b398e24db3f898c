// The receiver of the OpenTelemetry Collector: `collector HOST:PORT` prints what arrives, one JSON document a line, as the
// Collector's own file exporter writes it. It ends with its standard input.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

var writing sync.Mutex

func write(document []byte, err error) error {
	if err != nil {
		return err
	}
	writing.Lock()
	defer writing.Unlock()
	_, err = fmt.Printf("%s\n", document)
	return err
}

func serve(endpoint string) error {
	ctx := context.Background()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	protocols := map[string]any{"http": map[string]any{"endpoint": endpoint}}
	settings := map[string]any{"protocols": protocols}
	if err := confmap.NewFromStringMap(settings).Unmarshal(config); err != nil {
		return err
	}
	traces, err := consumer.NewTraces(func(_ context.Context, data ptrace.Traces) error {
		return write((&ptrace.JSONMarshaler{}).MarshalTraces(data))
	})
	if err != nil {
		return err
	}
	metrics, err := consumer.NewMetrics(func(_ context.Context, data pmetric.Metrics) error {
		return write((&pmetric.JSONMarshaler{}).MarshalMetrics(data))
	})
	if err != nil {
		return err
	}
	logs, err := consumer.NewLogs(func(_ context.Context, data plog.Logs) error {
		return write((&plog.JSONMarshaler{}).MarshalLogs(data))
	})
	if err != nil {
		return err
	}
	of := receiver.Settings{
		ID:                component.NewID(factory.Type()),
		TelemetrySettings: componenttest.NewNopTelemetrySettings(),
		BuildInfo:         component.NewDefaultBuildInfo(),
	}
	// One receiver serves all three: the factory hands out the same for one configuration.
	first, err := factory.CreateTraces(ctx, of, config, traces)
	if err != nil {
		return err
	}
	second, err := factory.CreateMetrics(ctx, of, config, metrics)
	if err != nil {
		return err
	}
	third, err := factory.CreateLogs(ctx, of, config, logs)
	if err != nil {
		return err
	}
	all := []component.Component{first, second, third}
	for _, one := range all {
		if err := one.Start(ctx, componenttest.NewNopHost()); err != nil {
			return err
		}
	}
	fmt.Println(`"listening"`)
	_, err = io.Copy(io.Discard, os.Stdin)
	for _, one := range all {
		if stop := one.Shutdown(ctx); err == nil {
			err = stop
		}
	}
	return err
}

func main() {
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
