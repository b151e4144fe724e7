"""The endpoints, one module per kind of resource."""
