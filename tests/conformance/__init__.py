"""The shipped conformance suites, bound to the backends."""
