"""Shipped test tools: conformance suites, oracle model, Hypothesis strategies, private servers."""
