"""Tags and ids in query strings.

`tags=a,b+c` means a, or b and c; a repeated parameter adds alternatives. Tags never contain a
comma, so an encoded comma separates too. An encoded `+` joins like a raw one: clients that encode
their parameters have no other way to express AND. To search for a tag that contains `+`, use
`f.tags=cs=…`.
"""

from __future__ import annotations

from naksha.hub.query_language.query_string import decoded, raw_values
from naksha.model.errors import LimitExceeded
from naksha.model.identity.names import check_feature_id, text_problem
from naksha.model.limits import FEATURE_ID_BYTES_MAX, IDS_MAX, TAGS_MAX
from naksha.model.tags import normalise_tag, normalise_tags

Groups = tuple[tuple[str, ...], ...]


def tag_query(raw: str | bytes) -> Groups | None:
    """Parse `tags` into an OR of ANDs; None if absent, `()` if no feature can match."""
    texts = [decoded(value, "tags", plus_is_space=False) for value in raw_values(raw, "tags")]
    groups = [group for text in texts for group in text.split(",") if group.strip("+")]
    if not groups:
        return None
    tag_groups = [[normalise_tag(tag) for tag in group.split("+") if tag] for group in groups]
    if sum(map(len, tag_groups)) > TAGS_MAX:
        raise LimitExceeded(
            f"The query has {sum(map(len, tag_groups))} tags; the maximum is {TAGS_MAX}",
            field="tags",
        )
    # A tag that is empty in normal form matches no feature.
    possible = (tuple(dict.fromkeys(group)) for group in tag_groups if all(group))
    return tuple(dict.fromkeys(possible))


def tag_list(raw: str | bytes, name: str) -> list[str]:
    """Return the tags of `addTags` or `removeTags` in normal form."""
    texts = [decoded(value, name, plus_is_space=False) for value in raw_values(raw, name)]
    return normalise_tags(texts)


def id_list(raw: str | bytes, name: str = "id") -> tuple[str, ...] | None:
    """Return the ids of a parameter that may be repeated or have commas; None if it is absent.

    Clients that encode their parameters encode the comma between ids too, but an id may contain a
    comma. So for an encoded comma both the whole text and its parts are candidates.
    """
    values = raw_values(raw, name)
    if not values:
        return None
    ids: dict[str, None] = {}
    for value in values:
        for piece in value.split(","):
            ids |= dict.fromkeys(_candidates(decoded(piece, name), name))
    if len(ids) > IDS_MAX:
        raise LimitExceeded(f"The request has {len(ids)} ids; the maximum is {IDS_MAX}", field=name)
    return tuple(ids)


def _candidates(text: str, name: str) -> list[str]:
    if "," not in text:
        return [check_feature_id(text, field=name)] if text else []
    parts = [check_feature_id(part, field=name) for part in text.split(",") if part]
    return parts if text_problem(text, FEATURE_ID_BYTES_MAX) else [text, *parts]
