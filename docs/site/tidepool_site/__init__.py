"""The documentation as a site and as man pages."""
