module tidepool.dev/e2e/published

go 1.26.0

require (
	github.com/openshift/api v0.0.0-20230503133300-8bbcb7ca7183
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
