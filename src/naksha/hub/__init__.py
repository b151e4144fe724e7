"""The hub: spaces, connectors, event pipelines, views and rights, on any storage and catalog."""
