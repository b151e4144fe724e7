"""Versions for scripts: log, differences, rollback, tags, branches and merges, without `await`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from naksha import versioning
from naksha.api.queries import query_of
from naksha.model.query import Query, Spatial
from naksha.model.transaction import LogFilter
from naksha.versioning import (
    Branch,
    Change,
    Changeset,
    Choices,
    Place,
    Policy,
    Signed,
    Step,
    StoredConflict,
    Tag,
    Undecided,
    Written,
)
from naksha.versioning.version_refs import MAIN_BRANCH

_LOG_FILTERS = ("collections", "authors", "app_ids", "from_ms", "to_ms", "text")

if TYPE_CHECKING:
    from naksha.api.database import Database


class Versions:
    """What can be done with the versions of a database, or of one of its branches.

    A version is said as text: a number, a transaction, `HEAD`, a tag, a time (`2026-01-31T12:00`),
    a UUID, each after `branch:` when it is on a branch; `3..7` is a range.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._call = database.call

    def _signed(self, message: str | None) -> Signed:
        app_id, author = self._database.signature()
        return Signed(app_id, author, message)

    def _line(self) -> versioning.Line:
        database = self._database
        return self._call(versioning.line_of(database.root, database.branch_name or MAIN_BRANCH))

    def place(self, ref: str) -> Place:
        """Where a version is."""
        return self._call(versioning.place_of(self._database.root, self._here(ref)))

    def _here(self, ref: str) -> str:
        """A reference without a branch is about the branch that this is."""
        name = self._database.branch_name
        if name is None or (":" in ref and not ref[:1].isdigit()):
            return ref
        return f"{name}:{ref}"

    def _known(self, collections: str | Sequence[str] | None) -> tuple[str, ...] | None:
        """Of a name that is spelled wrong nothing has changed; that must not be the answer."""
        if collections is None:
            return None
        names = (collections,) if isinstance(collections, str) else tuple(collections)
        for name in names:
            self._call(self._database.root.collection(name))
        return names

    # ---- Looking -----------------------------------------------------------------------------

    def log(
        self,
        *,
        area: Spatial | Sequence[float] | None = None,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = True,
        **filters: Any,
    ) -> list[Changeset]:
        """List changesets: who, when, what and why.

        Args:
            area: Where a feature was changed, as it was or as it became; a box or any spatial
                test.
            after: Go on after this version.
            limit: At most so many.
            newest_first: Or the oldest first.
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

    def diff(self, versions: str, collection: str, **query: Any) -> Iterator[Change]:
        """What differs between two versions (`3..7`), or what one version changed (`7`); with a
        query only what matched it in some state between, and was changed by its authors and in
        its time."""
        self._known(collection)
        ref = self._here(versions)
        old, new = self._call(versioning.range_of(self._database.root, ref))
        return self._database.iterate(versioning.diff(old, new, collection, query_of(**query)))

    def compare(self, old: str, new: str, collection: str, **query: Any) -> Iterator[Change]:
        """What differs between any two versions, also of different branches."""
        self._known(collection)
        places = self.place(old), self.place(new)
        return self._database.iterate(versioning.diff(*places, collection, query_of(**query)))

    def history(self, versions: str, collection: str, **query: Any) -> Iterator[Step]:
        """Every state of features between two versions (`3..7`, `*` for all), with who, when and
        what; with a query only states that match it."""
        self._known(collection)
        ref = self._here(versions)
        first, last = self._call(versioning.range_of(self._database.root, ref))
        return self._database.iterate(
            versioning.history(first, last, collection, query_of(**query))
        )

    # ---- Going back --------------------------------------------------------------------------

    def rollback(
        self,
        to: str,
        *,
        collections: str | Sequence[str] | None = None,
        message: str | None = None,
        dry_run: bool = False,
        **query: Any,
    ) -> Written:
        """Make features again what they were at a version, as a new transaction. With a query only
        features that matched it since then, and were changed by its authors and in its time."""
        place, asked = self.place(to), query_of(**query)
        return self._call(
            versioning.rollback(
                self._line(),
                place,
                self._signed(message),
                collections=self._known(collections),
                query=None if asked == Query() else asked,
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
    ) -> Written:
        """Take back what one version changed, and leave what others did since. With a query only
        the changes of features that matched it before or after the change."""
        place, asked = self.place(version), query_of(**query)
        return self._call(
            versioning.revert(
                self._line(),
                place,
                self._signed(message),
                collections=self._known(collections),
                query=None if asked == Query() else asked,
                dry_run=dry_run,
            )
        )

    # ---- Tags --------------------------------------------------------------------------------

    def tag(self, name: str, version: str = "HEAD", **options: Any) -> Tag:
        """Give a version a name; see `naksha.versioning.create_tag` for the options."""
        signed = self._signed(options.pop("message", None))
        ref = self._here(version)
        return self._call(versioning.create_tag(self._database.root, name, signed, ref, **options))

    def tags(self) -> list[Tag]:
        """All tags."""
        return self._call(versioning.tags(self._database.root))

    def untag(self, name: str) -> None:
        """Take a name away."""
        self._call(versioning.delete_tag(self._database.root, name, self._signed(None)))

    def drop_expired_tags(self) -> int:
        """Remove the tags that protect nothing and whose version is gone; how many there were."""
        # No log tells of tags, so it does not matter who takes them away.
        by = Signed("naksha")
        return self._call(versioning.drop_expired_tags(self._database.root, by))

    # ---- Branches ----------------------------------------------------------------------------

    def branches(self) -> list[Branch]:
        """All branches but main."""
        return self._call(versioning.branches(self._database.root))

    def create_branch(self, name: str, base: str = "HEAD", message: str | None = None) -> Database:
        """A new branch, to be read and written like the database."""
        ref, signed = self._here(base), self._signed(message)
        self._call(versioning.create_branch(self._database.root, name, signed, ref))
        return self._database.branch(name)

    def rename_branch(self, name: str, new_name: str) -> None:
        """Give a branch another name."""
        signed = self._signed(None)
        self._call(versioning.rename_branch(self._database.root, name, new_name, signed))

    def delete_branch(self, name: str) -> None:
        """Remove a branch and what was written on it."""
        self._call(versioning.delete_branch(self._database.root, name, self._signed(None)))

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        policy: Policy | str = Policy.FAIL,
        choices: Choices | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Bring what was changed on a branch to another one."""
        return self._call(
            versioning.merge(
                self._database.root,
                source,
                into,
                self._signed(message),
                policy=Policy(policy),
                choices=choices,
                dry_run=dry_run,
            )
        )

    def rebase(
        self,
        name: str,
        onto: str | None = None,
        *,
        policy: Policy | str = Policy.FAIL,
        choices: Choices | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Put a branch onto a newer version of what it was made from."""
        return self._call(
            versioning.rebase(
                self._database.root,
                name,
                self._signed(message),
                onto,
                policy=Policy(policy),
                choices=choices,
                dry_run=dry_run,
            )
        )

    def conflicts(self) -> list[StoredConflict]:
        """Merges that wait for a decision."""
        return self._call(versioning.conflicts(self._database.root))

    def undecided(self, conflict: str) -> Iterator[Undecided]:
        """The features that a conflict is about: base, ours and theirs, and where they differ."""
        return self._database.iterate(versioning.undecided_of(self._database.root, conflict))

    def resolve(self, conflict: str, choices: Choices, message: str | None = None) -> Written:
        """End a conflict: a side (`Policy.OURS`, `Policy.THEIRS`) or a feature for each
        `(collection, id)`."""
        signed = self._signed(message)
        return self._call(
            versioning.resolve_conflict(self._database.root, conflict, choices, signed)
        )

    def give_up(self, conflict: str) -> None:
        """Forget a conflict; neither side is changed."""
        signed = self._signed(None)
        self._call(versioning.give_up_conflict(self._database.root, conflict, signed))
