"""A real API server for tests, with Tidepool's CRDs in it: the fixtures are in `plugin`.

Not part of the product: the images leave it out.
"""
