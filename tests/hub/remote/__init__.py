"""Handlers of others: in this process by entry point, and in processes of their own."""
