"""The parts of the OpenAPI document that are not derived from the routes.

Schemas, descriptions and examples belong here.
"""
