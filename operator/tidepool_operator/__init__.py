"""The operator of Tidepool: handlers take in changes, a pure planner says what should be, a reconciler does it."""

__version__ = "0.2.0"
