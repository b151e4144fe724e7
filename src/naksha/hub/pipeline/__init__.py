"""Events, requests and responses, and the pipelines that they run through.

Plain data that handlers exchange belongs here; what a handler does belongs to
`naksha.hub.handlers`.
"""
