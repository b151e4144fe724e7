"""Shipped test tools: conformance suites, the oracle model, strategies, a PostgreSQL cluster."""
