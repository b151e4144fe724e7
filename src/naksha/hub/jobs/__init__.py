"""Jobs of the data pipeline as objects of the hub.

They are submitted, run by one instance at a time in a process of their own, monitored, cancelled
and removed.
"""
