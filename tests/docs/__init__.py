"""Tests of the documents, which run their examples."""
