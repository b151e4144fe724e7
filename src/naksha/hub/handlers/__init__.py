"""Built-in event handlers. A connector names one of these or one of another distribution."""
