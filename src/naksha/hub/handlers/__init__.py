"""The built-in event handlers; a connector names one of them, or one of another distribution."""
