"""Tags and ids in query strings.

`tags=a,b+c` means a, or b and c; a repeated parameter is one more OR. Tags never contain a comma,
so an encoded one separates as well. An encoded `+` joins as a raw one does: clients that encode
their parameters have no other way to say AND. Who looks for a tag that has a `+` in it asks for
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
    """What `tags` asks for, as OR of ANDs; None if nothing, `()` if what no feature can have."""
    texts = [decoded(value, "tags", plus_is_space=False) for value in raw_values(raw, "tags")]
    groups = [group for text in texts for group in text.split(",") if group.strip("+")]
    if not groups:
        return None
    wanted = [[normalise_tag(tag) for tag in group.split("+") if tag] for group in groups]
    if sum(map(len, wanted)) > TAGS_MAX:
        raise LimitExceeded(f"more than {TAGS_MAX} tags", field="tags")
    # A tag of which nothing is left in normal form is on no feature.
    possible = (tuple(dict.fromkeys(group)) for group in wanted if all(group))
    return tuple(dict.fromkeys(possible))


def tag_list(raw: str | bytes, name: str) -> list[str]:
    """The tags of `addTags` or `removeTags`, in normal form."""
    texts = [decoded(value, name, plus_is_space=False) for value in raw_values(raw, name)]
    return normalise_tags(texts)


def id_list(raw: str | bytes, name: str = "id") -> tuple[str, ...] | None:
    """The ids of a parameter that is repeated or has commas; None if it is not there.

    Clients that encode their parameters encode the comma between ids too, but a comma may be a part
    of an id: then the whole is a candidate as well as its parts."""
    values = raw_values(raw, name)
    if not values:
        return None
    ids: dict[str, None] = {}
    for value in values:
        for piece in value.split(","):
            ids |= dict.fromkeys(_candidates(decoded(piece, name), name))
    if len(ids) > IDS_MAX:
        raise LimitExceeded(f"{len(ids)} ids, more than {IDS_MAX}", field=name)
    return tuple(ids)


def _candidates(text: str, name: str) -> list[str]:
    if "," not in text:
        return [check_feature_id(text, field=name)] if text else []
    parts = [check_feature_id(part, field=name) for part in text.split(",") if part]
    return parts if text_problem(text, FEATURE_ID_BYTES_MAX) else [text, *parts]
