"""Tests of the jobs of the data pipeline."""
