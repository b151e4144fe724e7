"""Reading requests: query parameters, bodies, and the state that every request can reach.

Checks of a single parameter or body belong here; checks against data belong to the hub.
"""
