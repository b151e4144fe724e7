"""Versioning for scripts: log, diffs, rollback, tags, branches and merges, synchronously."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from naksha import versioning
from naksha.api.queries import query_of
from naksha.model.query import Query, Spatial
from naksha.model.transaction import LogFilter
from naksha.versioning import (
    Attribution,
    Branch,
    Changeset,
    Choices,
    FeatureDiff,
    HistoryStep,
    MergePolicy,
    Place,
    StoredConflict,
    Tag,
    UndecidedFeature,
    WriteReport,
)
from naksha.versioning.version_refs import MAIN_BRANCH

_LOG_FILTERS = ("collections", "authors", "app_ids", "from_ms", "to_ms", "text")

if TYPE_CHECKING:
    from naksha.api.database import Database


class Versions:
    """Version operations of a database, or of one of its branches.

    A version reference is a string: a number, a transaction, `HEAD`, a tag, a time
    (`2026-01-31T12:00`) or a UUID, prefixed by `branch:` for a branch; `3..7` is a range.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._call = database.call

    def _signed(self, message: str | None) -> Attribution:
        app_id, author = self._database.signature()
        return Attribution(app_id, author, message)

    def _line(self) -> versioning.Line:
        database = self._database
        return self._call(versioning.line_of(database.root, database.branch_name or MAIN_BRANCH))

    def place(self, ref: str) -> Place:
        """Resolve a version reference."""
        return self._call(versioning.place_of(self._database.root, self._here(ref)))

    def _here(self, ref: str) -> str:
        """Add this branch to a reference without a branch."""
        name = self._database.branch_name
        if name is None or (":" in ref and not ref[:1].isdigit()):
            return ref
        return f"{name}:{ref}"

    def _known(self, collections: str | Sequence[str] | None) -> tuple[str, ...] | None:
        """Return the names of collections, after checking that they exist.

        For a misspelt name the result would otherwise be empty.
        """
        if collections is None:
            return None
        names = (collections,) if isinstance(collections, str) else tuple(collections)
        for name in names:
            self._call(self._database.root.collection(name))
        return names

    # ---- Reading -----------------------------------------------------------------------------

    def log(
        self,
        *,
        area: Spatial | Sequence[float] | None = None,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = True,
        **filters: Any,
    ) -> list[Changeset]:
        """List changesets, with author, time, message and counts.

        Args:
            area: Only changesets that changed a feature here, before or after the change; a box or
                any spatial condition.
            after: Position: continue after this version.
            limit: Maximum number of changesets.
            newest_first: False lists the oldest first.
            filters: On changesets: `collections`, `authors`, `app_ids`, `from_ms`, `to_ms` (of the
                publication), `text`. On the changed features, before or after the change: the
                parts of a query (`naksha.api.queries.query_of`), such as `where`, `tags`, `ids`
                and `bbox`; `updated_from` and `updated_to` test the time of the change.
        """
        spatial = query_of(bbox=area).spatial if isinstance(area, Sequence) else area
        where = {name: filters.pop(name) for name in _LOG_FILTERS if name in filters}
        chosen: dict[str, Any] = {
            k: (v,) if isinstance(v, str) and k != "text" else v for k, v in where.items()
        }
        page = versioning.changesets(
            self._line(),
            area=spatial,
            where=LogFilter(**chosen),
            query=query_of(**filters),
            after=after,
            limit=limit,
            newest_first=newest_first,
        )
        return self._call(page).changesets

    def diff(self, versions: str, collection: str, **query: Any) -> Iterator[FeatureDiff]:
        """Iterate over the differences between two versions (`3..7`) or of one version (`7`).

        With a query: only features that matched it in a state in between and were changed by its
        authors and in its time range.
        """
        self._known(collection)
        ref = self._here(versions)
        old, new = self._call(versioning.range_of(self._database.root, ref))
        return self._database.iterate(versioning.diff(old, new, collection, query_of(**query)))

    def compare(self, old: str, new: str, collection: str, **query: Any) -> Iterator[FeatureDiff]:
        """Iterate over the differences between any two versions, also of different branches."""
        self._known(collection)
        places = self.place(old), self.place(new)
        return self._database.iterate(versioning.diff(*places, collection, query_of(**query)))

    def history(self, versions: str, collection: str, **query: Any) -> Iterator[HistoryStep]:
        """Iterate over all states of features between two versions (`3..7`, `*` for all).

        Each step has author, time and action. With a query: only states that match it.
        """
        self._known(collection)
        ref = self._here(versions)
        first, last = self._call(versioning.range_of(self._database.root, ref))
        return self._database.iterate(
            versioning.history(first, last, collection, query_of(**query))
        )

    # ---- Rollback and revert -----------------------------------------------------------------

    def rollback(
        self,
        to: str,
        *,
        collections: str | Sequence[str] | None = None,
        message: str | None = None,
        dry_run: bool = False,
        **query: Any,
    ) -> WriteReport:
        """Restore features to their state at a version, in a new transaction.

        With a query: only features that matched it since then and were changed by its authors in
        its time range.
        """
        place, selection = self.place(to), query_of(**query)
        return self._call(
            versioning.rollback(
                self._line(),
                place,
                self._signed(message),
                collections=self._known(collections),
                query=None if selection == Query() else selection,
                dry_run=dry_run,
            )
        )

    def revert(
        self,
        version: str,
        *,
        collections: str | Sequence[str] | None = None,
        message: str | None = None,
        dry_run: bool = False,
        **query: Any,
    ) -> WriteReport:
        """Undo the changes of one version and keep later ones.

        With a query: only the changes of features that matched it before or after the change.
        """
        place, selection = self.place(version), query_of(**query)
        return self._call(
            versioning.revert(
                self._line(),
                place,
                self._signed(message),
                collections=self._known(collections),
                query=None if selection == Query() else selection,
                dry_run=dry_run,
            )
        )

    # ---- Tags --------------------------------------------------------------------------------

    def tag(self, name: str, version: str = "HEAD", **options: Any) -> Tag:
        """Create a tag on a version; see `naksha.versioning.create_tag` for the options."""
        signed = self._signed(options.pop("message", None))
        ref = self._here(version)
        return self._call(versioning.create_tag(self._database.root, name, signed, ref, **options))

    def tags(self) -> list[Tag]:
        """Return all tags."""
        return self._call(versioning.tags(self._database.root))

    def untag(self, name: str) -> None:
        """Delete a tag."""
        self._call(versioning.delete_tag(self._database.root, name, self._signed(None)))

    def drop_expired_tags(self) -> int:
        """Remove unprotecting tags whose version has expired; return their number."""
        # No log records tags, so the app id does not matter.
        by = Attribution("naksha")
        return self._call(versioning.drop_expired_tags(self._database.root, by))

    # ---- Branches ----------------------------------------------------------------------------

    def branches(self) -> list[Branch]:
        """Return all branches except main."""
        return self._call(versioning.branches(self._database.root))

    def create_branch(self, name: str, base: str = "HEAD", message: str | None = None) -> Database:
        """Create a branch, to read and write it like the database."""
        ref, signed = self._here(base), self._signed(message)
        self._call(versioning.create_branch(self._database.root, name, signed, ref))
        return self._database.branch(name)

    def rename_branch(self, name: str, new_name: str) -> None:
        """Rename a branch."""
        signed = self._signed(None)
        self._call(versioning.rename_branch(self._database.root, name, new_name, signed))

    def delete_branch(self, name: str) -> None:
        """Remove a branch and all its changes."""
        self._call(versioning.delete_branch(self._database.root, name, self._signed(None)))

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        policy: MergePolicy | str = MergePolicy.FAIL,
        choices: Choices | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> WriteReport:
        """Merge the changes of a branch into another one."""
        return self._call(
            versioning.merge(
                self._database.root,
                source,
                into,
                self._signed(message),
                policy=MergePolicy(policy),
                choices=choices,
                dry_run=dry_run,
            )
        )

    def rebase(
        self,
        name: str,
        onto: str | None = None,
        *,
        policy: MergePolicy | str = MergePolicy.FAIL,
        choices: Choices | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> WriteReport:
        """Rebase a branch onto a newer version of its base."""
        return self._call(
            versioning.rebase(
                self._database.root,
                name,
                self._signed(message),
                onto,
                policy=MergePolicy(policy),
                choices=choices,
                dry_run=dry_run,
            )
        )

    def conflicts(self) -> list[StoredConflict]:
        """Return the pending merges."""
        return self._call(versioning.conflicts(self._database.root))

    def undecided(self, conflict: str) -> Iterator[UndecidedFeature]:
        """Iterate over the features of a conflict: base, ours, theirs, and the differing paths."""
        return self._database.iterate(versioning.undecided_of(self._database.root, conflict))

    def resolve(self, conflict: str, choices: Choices, message: str | None = None) -> WriteReport:
        """Resolve a conflict with a choice for each `(collection, id)`.

        A choice is a side (`MergePolicy.OURS`, `MergePolicy.THEIRS`) or a feature.
        """
        signed = self._signed(message)
        return self._call(
            versioning.resolve_conflict(self._database.root, conflict, choices, signed)
        )

    def give_up(self, conflict: str) -> None:
        """Abandon a conflict; neither side is changed."""
        signed = self._signed(None)
        self._call(versioning.give_up_conflict(self._database.root, conflict, signed))
