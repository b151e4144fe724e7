"""Change feed: pages, log tails, and the JSON form of transactions.

Positions and leases of deliveries belong to `naksha.hub.subscriptions`.
"""
