"""Tests of the embedded storage beyond the conformance suite."""
