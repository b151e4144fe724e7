"""Execution of one modification with a few set-based calls of a session.

The current states are read at once, and each kind of change is one call. Each change is locked to
the state that the decision was based on. If a lock fails, another writer was faster and the whole
transaction is repeated (`Retryable`), so a patch never overwrites a concurrent change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from naksha.hub.pipeline.requests import MASKS, IfExists, IfNotExists
from naksha.hub.write.entries import Entry
from naksha.hub.write.failures import Failures, set_entry
from naksha.hub.write.guards import WritePermissions
from naksha.hub.write.merge_bases import find_bases
from naksha.hub.write.namespaces import Feature
from naksha.hub.write.reports import RETAINED, Report
from naksha.hub.write.rules import Rules
from naksha.hub.write.unmask import unmask
from naksha.hub.write.write_plan import FeatureStates, PlannedWrite, WritePlan, WritePlanner
from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    Conflict,
    FeatureNotFound,
    NakshaError,
    PreconditionFailed,
    Retryable,
)
from naksha.model.features import check_features
from naksha.model.query import Query, States
from naksha.model.state import State, WriteOutcome
from naksha.model.write_checks import check_points
from naksha.spi.changes import Change, Delete, Put
from naksha.spi.query.predicates import holds
from naksha.spi.storage import WriteSession

Entries = Mapping[str, Entry]


class ModificationWriter:
    """Carries out modifications in one session."""

    def __init__(
        self,
        session: WriteSession,
        report: Report,
        failures: Failures,
        permissions: WritePermissions,
        *,
        returning: bool,
        is_json: bool,
    ) -> None:
        """Set up the execution; `is_json` is that of the request's context."""
        self._session = session
        self._report = report
        self._failures = failures
        self._permissions = permissions
        self._returning = returning
        self._is_json = is_json

    async def write(
        self, rules: Rules, entries: Entries, read: Mapping[str, State], *, commit: bool = False
    ) -> None:
        """Carry out a modification; `read` has its features at the version of the request.

        With `commit` it is the last one, and may commit the session.
        """
        if rules.modification.unmasks and rules.collection is not None:
            below = {id: e for id, e in entries.items() if id in rules.modification.after}
            unmasked = await self._unmask(rules.collection, below)
            entries = {id: entry for id, entry in entries.items() if id not in unmasked}
        if self._permissions:
            await self._read_and_write(rules, entries, read, commit)
        elif _only_puts(rules, self._failures.transactional):
            await self._put(rules, entries, commit)
        elif _only_deletes(rules):
            await self._delete(rules, entries, commit)
        else:
            await self._read_and_write(rules, entries, read, commit)

    # ---- Changes independent of the current state --------------------------------------------

    async def _put(self, rules: Rules, entries: Entries, commit: bool) -> None:
        features = [entry.feature for entry in entries.values() if entry.feature is not None]
        put = Put("upsert", features, is_json=self._is_json)
        with _errors_positioned(entries):
            (outcomes,) = await self._session.apply(
                _id_of(rules), [put], returning=self._returning, commit=commit
            )
        self._report_outcomes(outcomes, entries)

    async def _delete(self, rules: Rules, entries: Entries, commit: bool) -> None:
        must_exist = rules.modification.if_not_exists is IfNotExists.ERROR
        outcomes = [WriteOutcome(id, RETAINED, None, None) for id in entries]
        if rules.collection is not None:
            outcomes = await self._session.delete(
                rules.collection.id,
                list(entries),
                masks=not rules.modification.unmasks,
                returning=self._returning,
                commit=commit and not must_exist,
            )
        for outcome in outcomes:
            entry = entries[outcome.id]
            if outcome.action != RETAINED:
                self._report_outcomes([outcome], entries)
            elif must_exist:
                self._failures.add(
                    FeatureNotFound(
                        f"Feature {entry.id!r:.64} does not exist; create it, or correct its id",
                        field="id",
                    ),
                    entry,
                )
            else:
                self._report.add(entry.id, entry.position, RETAINED, None)

    async def _unmask(self, info: CollectionInfo, entries: Entries) -> set[str]:
        """Replace tombstones that hide lower features, and return the ids of those found."""
        page = await self._session.page(
            info.id, Query(ids=tuple(entries), states=States.DELETED, where=MASKS)
        )
        masking: list[str] = []
        for state in page.states:
            failed_before = len(self._failures.errors)
            with self._failures.of(entries[state.id]):
                self._permissions.check(state, None, info)
            if len(self._failures.errors) == failed_before:
                masking.append(state.id)
        if masking:
            with _failed_locks_retried(), _errors_positioned(entries):
                self._report_outcomes(
                    await unmask(self._session, info.id, masking, self._returning), entries
                )
        return {state.id for state in page.states}

    # ---- Changes that depend on the current state --------------------------------------------

    async def _read_and_write(
        self, rules: Rules, entries: Entries, read: Mapping[str, State], commit: bool
    ) -> None:
        heads = await self._heads(rules.collection, entries)
        modification = rules.modification
        if heads and modification.never_there and modification.if_exists is IfExists.ERROR:
            raise PreconditionFailed(
                f"Another writer created feature {next(iter(heads))!r:.64} during the write; "
                "retry the request"
            )
        states = {id: FeatureStates(heads.get(id), read=read.get(id)) for id in entries}
        failed_before = len(self._failures.errors)
        if rules.is_merge:
            features = [(entry, states[id]) for id, entry in entries.items()]
            bases = await find_bases(self._session, features, rules, self._failures)
            states = {id: each._replace(base=bases.get(id)) for id, each in states.items()}
        failed = {error.feature_id for error in self._failures.errors[failed_before:]}
        plan = WritePlan()
        planner = WritePlanner(rules, plan)
        for id, entry in entries.items():
            if id not in failed:
                with self._failures.of(entry):
                    planner.add(entry, states[id])
        if self._permissions:
            self._remove_forbidden(plan, heads, rules.collection)
        await self._execute(rules, plan, entries, commit)

    def _remove_forbidden(
        self, plan: WritePlan, heads: Mapping[str, State], info: CollectionInfo | None
    ) -> None:
        """Remove from a plan what the actor may not do."""

        def may(entry: Entry, content: Feature | None) -> bool:
            failed_before = len(self._failures.errors)
            with self._failures.of(entry):
                self._permissions.check(heads.get(entry.id), content, info)
            return len(self._failures.errors) == failed_before

        plan.creates = [each for each in plan.creates if may(each.entry, each.content.feature)]
        plan.changes = [each for each in plan.changes if may(each.entry, each.content.feature)]
        plan.deletes = [each for each in plan.deletes if may(each[0], None)]

    async def _heads(self, info: CollectionInfo | None, entries: Entries) -> dict[str, State]:
        if info is None or not entries:
            return {}
        page = await self._session.page(info.id, Query(ids=tuple(entries)))
        return {state.id: state for state in page.states}

    async def _execute(self, rules: Rules, plan: WritePlan, entries: Entries, commit: bool) -> None:
        for entry, state in plan.retained:
            shown = state if self._returning else None
            self._report.add(entry.id, entry.position, RETAINED, shown)
        if rules.collection is None:
            return
        if not self._failures.transactional:
            plan.creates = self._valid(plan.creates, rules.collection)
            plan.changes = self._valid(plan.changes, rules.collection)
        with _failed_locks_retried(), _errors_positioned(entries):
            await self._write(rules, plan, entries, commit)

    async def _tombstones(self, rules: Rules, ids: list[str]) -> dict[str, int]:
        """Return the versions of tombstones; raise PreconditionFailed if one is masking."""
        query = Query(ids=tuple(ids), states=States.DELETED)
        page = await self._session.page(_id_of(rules), query)
        if any(holds(state.feature, MASKS) for state in page.states):
            raise PreconditionFailed(
                "Another writer deleted one of the features during the write; retry the request"
            )
        return {state.id: state.xyz["version"] for state in page.states}

    async def _write(self, rules: Rules, plan: WritePlan, entries: Entries, commit: bool) -> None:
        """Write a plan at once; each change is locked to the state that it was decided on."""
        collection, modification = _id_of(rules), rules.modification
        changes: list[Change] = []
        after = [modification.after.get(each.entry.id, 0) for each in plan.creates]
        tombstones: dict[str, int] = {}
        is_new = bool(plan.creates) and modification.never_there
        if is_new:
            tombstones = await self._tombstones(rules, [each.entry.id for each in plan.creates])
        if plan.creates:
            features = [each.content.feature for each in plan.creates]
            versions = after if any(after) else None
            changes.append(Put("create", features, after=versions, is_json=self._is_json))
        if plan.changes:
            features = [each.content.feature for each in plan.changes]
            muuids = [each.content.muuid for each in plan.changes]
            changes.append(Put("upsert", features, muuids=muuids, is_json=self._is_json))
        if plan.deletes:
            ids, uuids = [entry.id for entry, _ in plan.deletes], [uuid for _, uuid in plan.deletes]
            changes.append(Delete(ids, uuids, masks=not modification.unmasks))
        if not changes:
            return
        outcomes = await self._session.apply(
            collection, changes, returning=self._returning, commit=commit and not is_new
        )
        if is_new:
            _check_never_there(outcomes[0], after, tombstones)
        for each in outcomes:
            self._report_outcomes(each, entries)

    def _valid(self, planned: list[PlannedWrite], info: CollectionInfo) -> list[PlannedWrite]:
        """Return the features that the storage accepts; check all at once first for speed."""
        try:
            self._check(planned, info)
        except NakshaError:
            valid = []
            for each in planned:
                with self._failures.of(each.entry):
                    self._check([each], info)
                    valid.append(each)
            return valid
        return planned

    def _check(self, planned: list[PlannedWrite], info: CollectionInfo) -> None:
        features = [each.content.feature for each in planned]
        check_points(check_features(features, is_json=self._is_json), info)

    def _report_outcomes(self, outcomes: list[WriteOutcome], entries: Entries) -> None:
        for outcome in outcomes:
            position = entries[outcome.id].position
            self._report.add(outcome.id, position, outcome.action, outcome.state)


def _only_puts(rules: Rules, transactional: bool) -> bool:
    """Whether the modification is a put that does not depend on current states."""
    actions = (rules.modification.if_exists, rules.modification.if_not_exists)
    is_put = actions == (IfExists.REPLACE, IfNotExists.CREATE) and not rules.modification.ids
    is_put = is_put and not rules.modification.never_there and not rules.modification.after
    return is_put and transactional and not rules.detects_conflicts and not rules.tags


def _only_deletes(rules: Rules) -> bool:
    """Whether the modification deletes ids regardless of current states."""
    modification = rules.modification
    is_deletion = modification.if_exists is IfExists.DELETE
    return is_deletion and not modification.features and not rules.detects_conflicts


def _check_never_there(
    outcomes: list[WriteOutcome], after: list[int], tombstones: Mapping[str, int]
) -> None:
    """Check that no tombstone appeared: versions continue after it, so a gap shows one."""
    for version, outcome in zip(after, outcomes, strict=True):
        if outcome.version != version + tombstones.get(outcome.id, 0) + 1:
            raise PreconditionFailed(
                f"Another writer deleted feature {outcome.id!r:.64} during the write; "
                "retry the request"
            )


def _id_of(rules: Rules) -> str:
    assert rules.collection is not None, "created before the first write to it"
    return rules.collection.id


@contextmanager
def _errors_positioned(entries: Entries) -> Iterator[None]:
    """Add the request position to the storage's errors about a feature."""
    try:
        yield
    except NakshaError as error:
        entry = entries.get(error.feature_id or "")
        if entry is not None:
            set_entry(error, entry)
        raise


@contextmanager
def _failed_locks_retried() -> Iterator[None]:
    """Turn a failed lock into Retryable: another writer changed the feature since it was read."""
    try:
        yield
    except (Conflict, FeatureNotFound) as error:
        if error.feature_id is None:
            raise
        raise Retryable(
            f"Another writer changed feature {error.feature_id!r:.64} during the write; retry the "
            "request",
            feature_id=error.feature_id,
        ) from error
