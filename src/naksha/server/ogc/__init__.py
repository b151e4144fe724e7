"""OGC API: resources under `/ogc`, in which a collection is a space.

A module per kind of resource, with its endpoints and its JSON. What they return is read and
rendered as by the endpoints under `/hub`.
"""
