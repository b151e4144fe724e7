"""Subscriptions: ordered at-least-once delivery of every published change of a storage or space.

Each subscription is delivered by one instance of the hub at a time.
"""
