// Package crds names the modules whose definitions of resources the tests install.
package crds

import (
	_ "istio.io/api/label"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)
