"""The contracts between the parts: what a storage offers and what it may leave out."""
