"""Normalisation of tags, the same for writes and queries.

A tag that starts with `@` is kept unchanged.  Any other is decomposed (NFD) and stripped of
non-ASCII characters; it becomes lower case unless it starts with `~`, `#`, `ref_` or `sourceID_`. A
comma always separates tags.  Empty tags and repetitions are removed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from naksha.model.errors import InvalidArgument
from naksha.model.feature_problems import ProblemError
from naksha.model.identity.names import text_problem
from naksha.model.limits import TAG_LENGTH_MAX, TAG_TEXT_BYTES_MAX, TAGS_MAX
from naksha.model.value_text import value_text

_ARRAY: Final = (list, tuple)
_CACHED_MAX: Final = 8
"""Longer tag lists are not cached, so that the cache stays small."""
_CASE_KEPT: Final = ("~", "#", "ref_", "sourceID_")


def normalise_tag(tag: str) -> str:
    """Normalise one tag to the form in which it is stored and searched; idempotent."""
    if tag.startswith("@"):
        return tag
    decomposed = unicodedata.normalize("NFD", tag)
    ascii_only = decomposed.encode("ascii", "ignore").decode()
    return ascii_only if decomposed.startswith(_CASE_KEPT) else ascii_only.lower()


def normalise_tags(tags: Sequence[str]) -> list[str]:
    """Normalise tags, split at commas, without empty ones and repetitions."""
    try:
        return checked_tags(tags)
    except ProblemError as broken:
        problem = broken.problem.below("tags")
        raise InvalidArgument(problem.sentence(), field=problem.path) from None


def checked_tags(tags: object) -> list[str]:
    """Normalise tags as `normalise_tags` does, for callers that know the path of an error."""
    if not isinstance(tags, _ARRAY):
        raise ProblemError("", f"must be an array of strings, not {value_text(tags)}")
    try:
        known = _cached if len(tags) <= _CACHED_MAX else _normalised
        normalised = [*known(tuple(tags))]
    except (TypeError, ValueError):
        _raise_first_problem(tags)
        raise
    if len(normalised) > TAGS_MAX:
        raise ProblemError("", f"has {len(normalised)} tags, but at most {TAGS_MAX} are allowed")
    return normalised


def _normalised(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the distinct tags of all texts."""
    return tuple(dict.fromkeys(chain.from_iterable(map(_pieces, texts))))


_cached: Final = lru_cache(maxsize=1024)(_normalised)
"""Most features share a few tag lists."""


def _pieces(text: str) -> tuple[str, ...]:
    """Return the tags of one text."""
    problem = _tag_problem(text)
    if problem is not None:
        raise ValueError(problem)
    return tuple(filter(None, map(normalise_tag, text.split(","))))


def _raise_first_problem(tags: Sequence[object]) -> None:
    for index, tag in enumerate(tags):
        message = _tag_problem(tag)
        if message is not None:
            raise ProblemError(f"[{index}]", message)


def _tag_problem(tag: object) -> str | None:
    if not isinstance(tag, str):
        return f"must be a string, not {value_text(tag)}"
    longest = max(map(len, tag.split(",")))
    if longest > TAG_LENGTH_MAX:
        return f"has {longest} characters, but at most {TAG_LENGTH_MAX} are allowed"
    return None if tag == "" else text_problem(tag, TAG_TEXT_BYTES_MAX)
