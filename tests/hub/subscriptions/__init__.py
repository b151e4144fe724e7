"""Tests of subscriptions."""
