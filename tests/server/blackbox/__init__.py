"""The server as strangers see it: their clients, their nonsense, and their bad manners."""
