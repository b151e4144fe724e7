"""OpenAPI descriptions, schemas and examples that are not derived from the routes.

Response declarations that several routes share belong here, too.
"""
