"""The change feed as the hub serves and delivers it.

Pages, tails and the JSON form of transactions belong here; positions and leases belong to
subscriptions.
"""
