"""Subscriptions: every published change of a storage or space reaches whoever wants it, in order
and at least once, from one instance of the hub at a time."""
