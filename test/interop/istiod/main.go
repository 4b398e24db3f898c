// Command istiod runs Istio's control plane as its module has it.
package main

import (
	"os"

	"istio.io/istio/pilot/cmd/pilot-discovery/app"
	"istio.io/istio/pkg/log"
)

func main() {
	log.EnableKlogWithCobra()
	if err := app.NewRootCommand().Execute(); err != nil {
		os.Exit(1)
	}
}
