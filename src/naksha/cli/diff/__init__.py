"""The command `diff`: what changed in a collection between two versions, as text, JSON or a map."""
