// The OpenTelemetry collector with an OTLP receiver and a file exporter, for `npm run soak -- otlp`.
package main

import (
	"log"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func main() {
	resolver := confmap.ResolverSettings{
		DefaultScheme:     "file",
		ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
	}
	settings := otelcol.CollectorSettings{
		BuildInfo:              component.BuildInfo{Command: "collector", Version: "0"},
		Factories:              factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: resolver},
	}
	if err := otelcol.NewCommand(settings).Execute(); err != nil {
		log.Fatal(err)
	}
}

func factories() (found otelcol.Factories, err error) {
	found.Telemetry = otelconftelemetry.NewFactory()
	found.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	if err != nil {
		return
	}
	found.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](fileexporter.NewFactory())
	return
}
