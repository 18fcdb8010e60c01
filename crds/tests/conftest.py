"""The API server of these tests."""

pytest_plugins = ["tidepool_api_testing.plugin"]
