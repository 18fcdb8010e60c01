"""The API server of the operator's tests."""

pytest_plugins = ["tidepool_api_testing.plugin"]
