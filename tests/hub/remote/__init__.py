"""Third-party handlers: in this process by entry point, and in separate processes."""
