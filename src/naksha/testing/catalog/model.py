"""Model of a catalog backend on plain dictionaries, for comparison call by call."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from naksha.spi.catalog import (
    ObjectKey,
    ObjectRow,
    PointerRow,
    Scanned,
    ScannedObject,
    ScannedPointer,
)


class CatalogModel:
    """Model of `naksha.spi.catalog.CatalogBackend` for sequential calls."""

    def __init__(self) -> None:
        self.pointers: dict[tuple[str, str], PointerRow] = {}
        self.objects: dict[tuple[str, ObjectKey], ObjectRow] = {}

    def create_pointer(self, realm: str, row: PointerRow) -> bool:
        if (realm, row.name) in self.pointers:
            return False
        self.pointers[realm, row.name] = row
        return True

    def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        return [self.create_pointer(realm, row) for row in rows].count(True)

    def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        return {n: self.pointers[realm, n] for n in names if (realm, n) in self.pointers}

    def list_pointers(self, realm: str, prefix: str, after: str, limit: int) -> list[PointerRow]:
        found = [
            row
            for (owner, name), row in self.pointers.items()
            if owner == realm
            and name.encode().startswith(prefix.encode())
            and name.encode() > after.encode()
        ]
        return sorted(found, key=lambda row: row.name.encode())[:limit]

    def _is_there(self, realm: str, expected: PointerRow) -> bool:
        row = self.pointers.get((realm, expected.name))
        return row is not None and (
            row.target == expected.target
            and row.created == expected.created
            and row.epoch == expected.epoch
        )

    def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        if not self._is_there(realm, expected):
            return False
        self.pointers[realm, row.name] = row
        return True

    def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        if not self._is_there(realm, expected):
            return False
        del self.pointers[realm, expected.name]
        return True

    def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        return {key: self.objects[realm, key] for key in keys if (realm, key) in self.objects}

    def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        for row in rows:
            self.objects[realm, row.key] = row

    def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        for key in keys:
            self.objects.pop((realm, key), None)

    def insert(self, realm: str, row: ObjectRow) -> bool:
        if (realm, row.key) in self.objects:
            return False
        self.objects[realm, row.key] = row
        return True

    def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        there = self.objects.get((realm, row.key))
        if there is None or there.type != row.type or there.token != expected_token:
            return False
        self.objects[realm, row.key] = row
        return True

    def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        there = self.objects.get((realm, key))
        if there is None or there.token != expected_token:
            return False
        del self.objects[realm, key]
        return True

    def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        self.write(realm, rows)
        return self.swap_pointer(realm, expected, row)

    def scan(self) -> list[Scanned]:
        pointers = [ScannedPointer(r, n, row.created) for (r, n), row in self.pointers.items()]
        objects = [
            ScannedObject(r, key, row.type, row.created_us)
            for (r, key), row in self.objects.items()
        ]
        return [*pointers, *objects]

    def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        before = len(self.pointers) + len(self.objects)
        for row in rows:
            if isinstance(row, ScannedPointer):
                pointer = self.pointers.get((row.realm, row.name))
                if pointer is not None and pointer.created == row.created:
                    del self.pointers[row.realm, row.name]
            else:
                there = self.objects.get((row.realm, row.key))
                if there is not None and there.created_us == row.created_us:
                    del self.objects[row.realm, row.key]
        return before - len(self.pointers) - len(self.objects)

    def delete_realms(self, realms: Collection[str]) -> None:
        self.pointers = {k: row for k, row in self.pointers.items() if k[0] not in realms}
        self.objects = {k: row for k, row in self.objects.items() if k[0] not in realms}
