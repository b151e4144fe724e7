"""Every limit of Naksha, in one place: nothing that grows with its input is without a bound.

A limit that is too small gets an error which names it; none is ever applied silently, except
`PAGE_DEFAULT`, which is what a caller gets who asks for no page size.  Units come last in the
name (`_BYTES`, `_MS`, `_SECONDS`); a plain `_MAX` counts things.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

INT8_MAX: Final = 2**63 - 1
"""The largest int8 of SQL: the bound of `txn`, `i`, `version` and `seq_number`."""

# ---- One feature ---------------------------------------------------------------------------------

FEATURE_BYTES_MAX: Final = 10 * MIB
"""JSON without geometry plus WKB.  A feature is parsed, compared and merged in memory as a whole,
and the API that existing clients speak ends its answers at the same size."""

FEATURE_ID_BYTES_MAX: Final = 512
"""A btree entry of PostgreSQL holds at most about 2,700 bytes; the id shares it with two txn."""

CRID_BYTES_MAX: Final = 512
"""The customer's reference id is indexed beside the feature id, so both must fit one entry."""

STATE_ID_BYTES_MAX: Final = 512
"""A state id that a client sends as a lock.  Ours have at most 96 characters; those of other
systems are ignored later, but must not be carried around at any length."""

JSON_DEPTH_MAX: Final = 100
"""Levels of objects and arrays in a feature, the feature itself being the first.  The strictest
parsers in common use stop at 128, SQLite and Python at 1,000."""

GEOMETRY_DEPTH_MAX: Final = 8
"""GeometryCollections inside each other, the outermost being the first."""

TAGS_MAX: Final = 1_000
"""Tags of one feature: they are compared as a set, and each is an entry of the inverted index."""

TAG_LENGTH_MAX: Final = 256
"""Characters of one tag.  An entry of the inverted index holds a few thousand bytes at most."""

TAG_TEXT_BYTES_MAX: Final = 4 * KIB
"""A text that holds several tags with commas between them; such texts are kept in a cache."""

GENERATED_ID_LENGTH: Final = 16
"""Random alphanumerics for a feature that comes without an id: 95 bits, no accidental twins."""

# ---- Names ---------------------------------------------------------------------------------------

COLLECTION_ID_LENGTH_MAX: Final = 32
"""PostgreSQL cuts identifiers at 63 bytes; the rest is for `_hst_2023_01_30`, leaf and index."""

STORAGE_ID_LENGTH_MAX: Final = 32
"""As long as a collection id, so that a state id has a known largest size."""

APP_ID_BYTES_MAX: Final = 256
"""App ids and authors are in an index of every table; user ids in tokens are far shorter."""

AUTHOR_BYTES_MAX: Final = 256
"""See `APP_ID_BYTES_MAX`."""

# ---- One call ------------------------------------------------------------------------------------

WRITE_FEATURES_MAX: Final = 100_000
"""Features of one write call.  A larger load is several calls in one session, or a bulk load."""

WRITE_BYTES_MAX: Final = 256 * MIB
"""Bytes of one write call: PostgreSQL refuses a single parameter of 1 GiB, and the call
exists several times in memory (parsed, encoded, in the driver's buffer)."""

PAGE_DEFAULT: Final = 30_000
"""Features of one answer when nothing else is asked for; what existing clients expect."""

PAGE_MAX: Final = 100_000
"""Features of one answer at most; what existing clients expect."""

IDS_MAX: Final = 100_000
"""Ids of one read or delete call, for the same reason as `WRITE_FEATURES_MAX`."""

PREDICATE_DEPTH_MAX: Final = 100
"""Levels of a property predicate, a plain test being the first; as deep as JSON may be."""

QUERY_VALUES_MAX: Final = 32_767
"""Values of one query: PostgreSQL's protocol counts them with 15 bits, SQLite stops there too."""

# ---- Messages in the transaction log -------------------------------------------------------------

MESSAGES_MAX: Final = 1_000
"""Messages of one transaction; the log is read whole for one transaction."""

MESSAGE_ID_BYTES_MAX: Final = 256
"""The message id is part of the log's unique index."""

MESSAGE_TEXT_BYTES_MAX: Final = 64 * KIB
"""Text for people: a long commit message, not a file."""

MESSAGE_JSON_BYTES_MAX: Final = 1 * MIB
"""The JSON attachment of a message."""

MESSAGE_BINARY_BYTES_MAX: Final = 1 * MIB
"""The binary attachment of a message."""

# ---- Kept beside the data ------------------------------------------------------------------------

KEPT_KIND_BYTES_MAX: Final = 64
"""What kind of object it is: a word of the program, not of its users."""

KEPT_ID_BYTES_MAX: Final = 512
"""As long as a feature id may be; it is indexed together with the kind."""

KEPT_JSON_BYTES_MAX: Final = 10 * MIB
"""As large as a feature: an open conflict holds the states it is about."""

PIN_NAME_BYTES_MAX: Final = 512
"""A pin is named after the object that needs it."""

LAYERS_MAX: Final = 9
"""Layers of a branch: at most 8 overlays, and main. Every overlay is one more anti-join of a
read."""

# ---- Trying again --------------------------------------------------------------------------------

RETRY_COUNT_MAX: Final = 10
"""Attempts of a single call or `run(fn)` after a serialisation failure.  Whoever fails
`RETRY_GATE_COUNT` times takes the collection's write gate, so the rest is only a safety net."""

RETRY_GATE_COUNT: Final = 3
"""Failures after which a writer takes the collection's write gate."""

RETRY_DELAY_MS_MIN: Final = 5
"""First pause between attempts, doubled each time with a random part."""

RETRY_DELAY_MS_MAX: Final = 1_000
"""Longest pause between two attempts."""
