"""Tiles that are cached and never stale.

What determines the bytes of a tile (`tile_basis`, `tile_key`), what changed since it was rendered
(`cell_tail`, `changes_inside`), where rendered tiles are kept (`memory_tiles`, `disk_tiles`), and
the service that combines these (`tile_service`). Nothing here knows HTTP or renders features:
the caller passes a function that does.
"""
