"""The hub: spaces, connectors, event pipelines, and who may do what with them."""
