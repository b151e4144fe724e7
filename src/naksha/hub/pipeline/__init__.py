"""Events, requests, responses, and the pipelines that process them.

Plain data that handlers exchange belongs here; handler implementations belong to
`naksha.hub.handlers`.
"""
