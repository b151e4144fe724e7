"""All limits of Naksha in one place: nothing that grows with its input is unbounded.

Exceeding a limit raises an error that names it; no limit is applied silently, except
`PAGE_DEFAULT`, which applies when a caller requests no page size.  Units come last in the name
(`_BYTES`, `_MS`, `_SECONDS`); a plain `_MAX` counts things.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

INT8_MAX: Final = 2**63 - 1
"""The largest int8 of SQL: the bound of `txn`, `i`, `version` and `seq_number`."""

# ---- One feature ---------------------------------------------------------------------------------

FEATURE_BYTES_MAX: Final = 10 * MIB
"""JSON without geometry, plus WKB.  A feature is parsed, compared and merged in memory as a whole,
and the API that existing clients use limits its responses to the same size."""

FEATURE_ID_BYTES_MAX: Final = 512
"""A btree entry of PostgreSQL holds at most about 2,700 bytes; the id shares it with two txn."""

CRID_BYTES_MAX: Final = 512
"""The customer's reference id is indexed together with the feature id, so both must fit one
entry."""

STATE_ID_BYTES_MAX: Final = 512
"""A state id that a client sends as a lock.  Naksha's have at most 96 characters; those of other
systems are ignored later, but their length must be bounded."""

JSON_DEPTH_MAX: Final = 100
"""Levels of objects and arrays in a feature, the feature itself being the first.  The strictest
parsers in common use stop at 128, SQLite and Python at 1,000."""

GEOMETRY_DEPTH_MAX: Final = 8
"""Nesting levels of GeometryCollections, the outermost being the first."""

TAGS_MAX: Final = 1_000
"""Tags of one feature: they are compared as a set, and each is an entry of the inverted index."""

TAG_LENGTH_MAX: Final = 256
"""Characters of one tag.  An entry of the inverted index holds a few thousand bytes at most."""

TAG_TEXT_BYTES_MAX: Final = 4 * KIB
"""A text with several comma-separated tags; such texts are cached."""

GENERATED_ID_LENGTH: Final = 16
"""Random alphanumerics for a feature without an id: 95 bits, so that collisions do not happen."""

# ---- Names ---------------------------------------------------------------------------------------

SCHEMA_BYTES_MAX: Final = 63
"""Schema name in PostgreSQL, which silently truncates a longer one."""

STORAGE_ID_LENGTH_MAX: Final = 32
"""As long as a collection id, so that the size of a state id is bounded."""

APP_ID_BYTES_MAX: Final = 256
"""App ids and authors are in an index of every table; user ids in tokens are far shorter."""

AUTHOR_BYTES_MAX: Final = 256
"""See `APP_ID_BYTES_MAX`."""

# ---- One call ------------------------------------------------------------------------------------

WRITE_FEATURES_MAX: Final = 100_000
"""Features per write call.  A larger load uses several calls in one session, or a bulk load."""

WRITE_BYTES_MAX: Final = 256 * MIB
"""Bytes per write call: PostgreSQL refuses a single parameter of 1 GiB, and the data of a call
exists several times in memory (parsed, encoded, in the driver's buffer)."""

PAGE_DEFAULT: Final = 30_000
"""Features per response if the client requests no limit; what existing clients expect."""

PAGE_MAX: Final = 100_000
"""Maximum features per response; what existing clients expect."""

IDS_MAX: Final = 100_000
"""Ids per read or delete call, for the same reason as `WRITE_FEATURES_MAX`."""

PREDICATE_DEPTH_MAX: Final = 100
"""Levels of a property predicate, a plain test being the first; as deep as JSON may be."""

QUERY_VALUES_MAX: Final = 32_767
"""Values per query: PostgreSQL's protocol counts them with 15 bits, SQLite has the same limit."""

PROPERTY_CONDITIONS_MAX: Final = 100
"""Conditions of a property query, joined by AND."""

PROPERTY_VALUES_MAX: Final = 5_000
"""Values of a property query; each uses a few of `QUERY_VALUES_MAX`."""

SELECTION_PATHS_MAX: Final = 1_000
"""Properties that can be selected at once."""

TILE_LEVEL_MAX: Final = 30
"""Levels of tiles in any scheme: at this level a tile measures a few centimetres."""

TILE_MARGIN_PIXELS_MAX: Final = 256
"""Margin around a tile in pixels; a tile has 256, so the result covers at most three by three
tiles."""

HEXAGON_COUNTS_MAX: Final = 1_000_000
"""Feature-hexagon pairs per response; a feature counts once for each hexagon that it touches."""

TILE_EXTENT_MAX: Final = 65_536
"""Units of a vector tile's grid, and of its buffer: sixteen times the usual extent."""

TILE_FEATURES_MAX: Final = 50_000
"""Features of a vector tile without a limit; if there are more, it has a sample of them."""

TILE_SAMPLE_MAX: Final = 8_000
"""Features of a sampled tile, which keeps a tile of a million points below 500 kB."""

TILE_CELLS_MAX: Final = 500
"""Tile cells recorded per transaction and collection; if there were more, larger cells replace the
smallest ones."""

TILE_CELL_CHANGES_MAX: Final = 2_000
"""Entries of a reply about changed tile cells; if there are more, the reply has none of them."""

TILE_REPLY_CELLS_MAX: Final = 20_000
"""Cells of a reply about changed tile cells that a process keeps: more would stop it for longer
than some 50 ms; it then begins again, as with TILE_TAIL_CELLS_MAX."""

TILE_TAIL_CELLS_MAX: Final = 500_000
"""Changed tile cells that a process keeps in memory per storage, about 50 MiB; if there are more,
it begins again, and looks up in the storage what changed before."""

TILE_MEMORY_BYTES: Final = 64 * MIB
"""Rendered tiles that a process keeps in memory."""

TILE_DISK_BYTES: Final = 1024 * MIB
"""Rendered tiles that a server keeps in files: a few hundred thousand of the usual size."""

TILE_CACHED_PARTS: Final = 8
"""The largest cached tile is this part of the cache."""

TILE_PLANS_MAX: Final = 20_000
"""Requests for tiles whose plans a process remembers, per configuration: about 2 KiB each."""

TILE_TAGS_MAX: Final = 8
"""Entity tags of one tile that a request can name; a client has one, a shared cache a few."""

TILE_CONFIRMED_MAX: Final = 10_000
"""Tiles of clients whose validity a process remembers although it has not rendered them."""

STATISTICS_KEYS_MAX: Final = 1_000
"""Properties and tags in the statistics of a collection, the most frequent ones."""

STATISTICS_BYTES_MAX: Final = 32 * MIB
"""Bytes of a collection that fast statistics read; they sample a larger collection."""

# ---- Messages in the transaction log -------------------------------------------------------------

MESSAGES_MAX: Final = 1_000
"""Messages per transaction; the log of one transaction is read as a whole."""

MESSAGE_ID_BYTES_MAX: Final = 256
"""The message id is part of the log's unique index."""

MESSAGE_TEXT_BYTES_MAX: Final = 64 * KIB
"""Text for people: a long commit message, not a file."""

MESSAGE_JSON_BYTES_MAX: Final = 1 * MIB
"""The JSON attachment of a message."""

MESSAGE_BINARY_BYTES_MAX: Final = 1 * MIB
"""The binary attachment of a message."""

# ---- Objects stored beside the data --------------------------------------------------------------

KEPT_KIND_BYTES_MAX: Final = 64
"""Kind of a stored object: chosen by the program, not by its users."""

KEPT_ID_BYTES_MAX: Final = 512
"""As long as a feature id; it is indexed together with the kind."""

KEPT_JSON_BYTES_MAX: Final = 10 * MIB
"""As large as a feature: an open conflict contains the states it is about."""

META_BYTES_MAX: Final = 1 * MIB
"""Size of one meta feature of a collection, as JSON."""
META_COUNT_MAX: Final = 1_000
"""Meta features per collection."""

PIN_NAME_BYTES_MAX: Final = 512
"""A pin is named after the object that needs it."""

MERGE_POINTS_MAX: Final = 1_000
"""Recorded merges between the same two branches: about 45 bytes each, in one object."""

LAYERS_MAX: Final = 9
"""Layers of a branch: at most 8 overlays, and main. Every overlay adds an anti-join to each
read."""

# ---- Facts remembered by an open storage ---------------------------------------------------------

KNOWN_VERSIONS_MAX: Final = 100_000
"""Versions whose transaction is known: about 15 MiB."""
KNOWN_TABLES_MAX: Final = 100_000
"""Collections, and tables of collections in overlays, that are known to exist."""

# ---- Retries -------------------------------------------------------------------------------------

RETRY_COUNT_MAX: Final = 10
"""Attempts of a single call or `run(fn)` after a serialisation failure.  A writer that failed
`RETRY_GATE_COUNT` times takes the collection's write gate, so the rest is only a safety net."""

RETRY_GATE_COUNT: Final = 3
"""Failures after which a writer takes the collection's write gate."""

LOCK_WAIT_SECONDS_MAX: int = 60
"""Lock timeout of a statement of the library. The error then names the holder of the lock."""

RETRY_DELAY_MS_MIN: Final = 5
"""Initial delay between attempts, doubled each time with a random part."""

RETRY_DELAY_MS_MAX: Final = 1_000
"""Maximum delay between two attempts."""

JOB_ID_BYTES_MAX: Final = 256
"""Id of a job that writes from many processes; it is stored and indexed."""

STAGING_LEASE_SECONDS: Final = 6 * 3600
"""How long staged features are kept without activity of their job before they are swept: as long as
the slowest task of a job may take to start. Staging more features renews the lease."""

STAGED_PARTS_MAX: Final = 20_000
"""Parts of one staged write: the tasks of a large Spark job."""

STAGED_OUTCOME_SECONDS_MAX: Final = 30.0
"""How long the storage is polled whether a staged write was applied, after the response to its
commit was lost; a restarted server should respond within this time."""

STAGED_CHUNK_FEATURES: Final = 25_000
STAGED_CHUNK_BYTES: Final = 64 * MIB
"""Staged features in memory at once while they are applied."""

BULK_BATCH_BYTES: Final = 4 * MIB
"""Approximate size of a batch read from a split; one state may be larger."""

JOB_KEPT_DAYS: Final = 30
"""How long the record of an applied job is kept; a repetition comes within minutes."""

IMPORT_PUBLICATION_SECONDS_MAX: Final = 60.0
"""How long the continued import of a history waits for the publication of earlier writes."""

# ---- The catalog ---------------------------------------------------------------------------------

CATALOG_ROW_BYTES_MAX: Final = 350 * 1000
"""Value of one row: some databases limit a row to 400 kB or a packet to 512 kB."""

CATALOG_OBJECT_BYTES_MAX: Final = 256 * MIB
"""Object that spans several rows; it is assembled in memory."""

CATALOG_BATCH_MAX: Final = 10_000
"""Objects per bulk call."""

CATALOG_CALL_SECONDS_MAX: Final = 5
"""Timeout of one database call: a third of the time of a commit, which leaves time to resolve an
unknown outcome."""

CATALOG_SESSIONS_MAX: Final = 16
"""Connections of one process to a database server."""

CATALOG_STATEMENT_BYTES_MAX: Final = 4 * MIB
"""Bytes sent to a database in one statement; a database may allow less. Some databases block other
sessions meanwhile."""

CATALOG_STATEMENT_ROWS_MAX: Final = 1_000
"""Rows that one statement writes, deletes or scans, for the same reason."""

OBJECT_TYPE_BYTES_MIN: Final = 2
OBJECT_TYPE_BYTES_MAX: Final = 32
"""The id of a type is part of every reference to an object."""

POINTER_NAME_BYTES_MAX: Final = 512
"""Name of a pointer; several databases limit an index entry to 767 bytes, the realm included."""

REALM_ID_LENGTH_MAX: Final = 128
"""The id of a realm is part of the key of every row."""

PREVIOUS_POINTERS_MAX: Final = 20
"""Previous targets of a pointer, nearest first, which are used to resolve an unknown outcome."""

COMMIT_TAIL_MAX: Final = 20
"""Ancestors listed in a commit, nearest first: a page of the log is one bulk read."""

COMMIT_SECONDS_MAX: Final = 15
"""How long a commit is retried. Far less than the shortest grace period of maintenance, so that
rows of a commit cannot be swept before they are referenced."""

COMMIT_RETRIES_MAX: Final = 10_000
"""Attempts of a commit within that time."""

COMMIT_GROUP_MAX: Final = 128
"""Commits that are written together and published with one swap."""

COMMIT_GROUP_BYTES_MAX: Final = 4 * MIB
"""A group of this size accepts no further commit."""

COMMIT_QUEUE_MAX: Final = 10_000
"""Commits that wait for one pointer; further ones are rejected."""

COMMIT_DELAY_MS_MIN: Final = 5
COMMIT_DELAY_MS_MAX: Final = 250
"""Delay after a lost swap: random, initially up to the former, doubled up to the latter."""

INDEX_KEY_BYTES_MAX: Final = 500
"""Key of an index."""

INDEX_EMBEDDED_BYTES_MAX: Final = 32 * 1000
"""Part of an index that is embedded in the commit; beyond it, entries are spilled into stripes."""

INDEX_EMBEDDED_BYTES_MIN: Final = 4 * 1000
"""The same for an index with few or no keys: every commit writes it."""

INDEX_ENTRY_BYTES: Final = 28
"""Typical size of a stored index entry, which a commit adds."""

INDEX_STRIPE_BYTES_MAX: Final = 128 * 1000
"""Stripe of an index; a larger one is split, and two neighbours that together have less than half
are merged."""

INDEX_STRIPES_INLINE_MAX: Final = 20
"""Stripes that are listed in the commit itself; a longer list is an object of its own."""

CHANGESET_PAGE_DEFAULT: Final = 100
CHANGESET_PAGE_MAX: Final = 10_000
"""Changesets in a page of the log of a space, which does not include their features."""

LOG_TEXT_LENGTH_MAX: Final = 200
"""Characters of a text that messages of changesets are searched for."""

LOG_PAGE_MAX: Final = 1_000
"""Commits per page of the catalog's log."""

LOG_WAIT_SECONDS_MAX: Final = 60
"""Longest wait for the next commit in one call."""

REALM_QUARANTINE_SECONDS: Final = 3 * 24 * 3_600
"""Minimum time that a realm which has served must be inactive before it can be purged."""

REALM_RELEASE_SECONDS_MAX: float = 7 * 24 * 3_600
"""How long the purge of a realm waits for storages that do not respond. Then its rows are deleted,
although pins may remain in those storages."""

FENCE_SECONDS_MAX: Final = 10
"""How long a change of a realm's state tries to reach its pointers; then the next process that
opens the realm completes it."""

OPEN_REALMS_MAX: Final = 1_000
"""Unused realms that a process keeps open."""

# ---- Maintenance of storages ---------------------------------------------------------------------

MAINTENANCE_SECONDS: Final = 600.0
"""Default interval between two rounds of a storage."""

MAINTENANCE_FIRST_SECONDS_MAX: Final = 60.0
"""Longest delay of the first round of a new storage."""

MAINTENANCE_BUDGET_SECONDS: Final = 300.0
"""Default time after which no further step of a round begins."""

MAINTENANCE_LATE_SECONDS: Final = 60.0
"""Longest pause after a round that had no time for all of its steps."""

MAINTENANCE_FAILED_SECONDS_MAX: Final = 3_600.0
"""Longest pause after failed rounds; it doubles with each of them."""

MAINTENANCE_OPEN_SECONDS_MAX: Final = 15.0
"""How long a round waits for its storage to open."""

MAINTENANCE_STEP_SECONDS_MAX: Final = 1_800.0
"""Timeout of one step of a round; the merge of a large year takes some minutes."""

MAINTENANCE_LOOK_SECONDS: Final = 5.0
"""Interval at which an instance scans for storages whose round is due."""

MAINTENANCE_READ_SECONDS: Final = 30
"""Longest time for which an instance does not read the state of a storage again."""

MAINTENANCE_PARALLEL_MAX: Final = 4
"""Concurrent rounds of an instance, not counting those that exceed their time budget."""

ROUND_NOTES_MAX: Final = 40
"""Entries of each list in the record of a round; the others are only counted."""

ROUND_NOTE_LENGTH_MAX: Final = 300
"""Characters of such an entry."""

MAINTENANCE_WAIT_SECONDS: Final = 20.0
"""How long a request for a round waits for its end before it returns the current state."""

MAINTENANCE_OVERDUE_SECONDS: Final = 3_600.0
"""Delay of a round, in addition to an interval, after which the health check warns."""

PARTITIONING_PAUSE_SECONDS: Final = 10.0
"""Pause between two refreshes of optimal partitionings, which batches the versions meanwhile."""

PARTITIONS_WARNED: Final = 120
"""Partitions of a history from which the health check warns; maintenance keeps fewer."""

PIN_WARNED_DAYS: Final = 30
"""Age of a pin from which the health check warns: a forgotten pin keeps history forever."""

PUBLICATION_HELD_SECONDS: Final = 60.0
"""How long publication may be held back before the health check warns."""

DISK_FREE_PERCENT_MIN: Final = 10
DISK_FREE_BYTES_MIN: Final = 10 * 1024 * MIB
"""Free space of a disk with files of the hub below which the health check warns; both hold."""

# ---- Maintenance of the catalog ------------------------------------------------------------------

CATALOG_ROUND_SECONDS: Final = 6 * 3_600.0
"""Minimum interval between two rounds of the catalog, each of which reads all of it."""

MAINTENANCE_GRACE_SECONDS: Final = 3 * 3_600
"""Rows that are younger are never swept, whether they are referenced or not."""

MAINTENANCE_GRACE_SECONDS_MIN: Final = 300
"""Shortest grace period: far above COMMIT_SECONDS_MAX, with room for clock skew."""

MAINTENANCE_RUNS_KEPT: Final = 50
"""Maintenance runs whose records are kept."""

MAINTENANCE_DELETE_BATCH: Final = 100
"""Rows that are checked again and deleted together; each may have CATALOG_ROW_BYTES_MAX."""

MAINTENANCE_BEAT_SECONDS: Final = 10
"""Interval of the heartbeat of a run, and of its check whether it was superseded."""

MAINTENANCE_NOTES_MAX: Final = 100
"""Problems that a report lists; the others are only counted."""

HISTORY_COMMITS_KEPT: Final = 1_000
HISTORY_SECONDS_KEPT: Final = 30 * 24 * 3_600
"""Default history of a pointer's log: whichever of the two is more."""

HISTORY_PIN_SECONDS_MAX: Final = 30 * 24 * 3_600
"""A consumer that has not moved its pin for this time no longer holds back history."""

CONSUMER_BYTES_MAX: Final = 256
"""Name of a consumer; it is part of an index key."""

MARKS_EXACT_MAX: Final = 4_000_000
"""Ids that maintenance keeps exactly, in 8 bytes each; more ids are kept in a Bloom filter."""

MARKS_PENDING_MAX: Final = 65_536
"""Ids that are sorted in together."""

MARKS_FILTER_GROWTH: Final = 4
"""A filter is sized for this multiple of the ids that did not fit, or for those of the last run."""

MARKS_FILTER_MAX: Final = 400_000_000
"""Maximum number of ids that a filter is sized for; it then has 1.2 GB."""

MARKS_FILTER_ONE_IN: Final = 100_000
"""A filter of the right size retains one in this many pieces of garbage by mistake."""

MARKS_FILTER_ONE_IN_MIN: Final = 20_000
"""With a worse filter nothing is deleted; the next run gets a larger one."""

TRANSFER_RECORD_BYTES_MAX: Final = 1 * MIB
"""Record of an exported realm: a row and its envelope."""

ID_WAIT_SECONDS_MAX: Final = 1
"""How long an id generator waits when the ids of its millisecond are exhausted; only a clock that
stands still makes it wait this long."""

CLOCK_JUMP_WARNING_SECONDS: Final = 2
"""A larger forward jump of the wall clock is logged, because leases end early."""

CLOCK_SKEW_SECONDS_MAX: Final = 60
"""Maintenance of the catalog deletes nothing while the clock of an instance differs more than this
from the clock of the database."""

CLOCK_SKEW_IGNORED_SECONDS: Final = 1
"""A smaller clock difference is not corrected: it may be network latency."""

CLOCK_CHECK_SECONDS: Final = 60
"""Interval at which an instance compares its clock with that of the database."""

CLOCK_READ_ATTEMPTS: Final = 3
"""Attempts to read the time of the database when a response takes too long to be accurate."""

LEASE_SECONDS: Final = 3_600
"""Duration of the lease of a node id; for so long a process generates ids without the database."""

LEASE_RENEW_SECONDS: Final = 900
"""A lease is renewed when its remaining time is less than this."""

LEASE_DRIFT_SECONDS: Final = 5
"""Tolerated clock drift between machines; with more, one may take another's lease too early. Ids
remain unique even then, but the former holder loses its node id."""

LEASE_RETRY_SECONDS: Final = 2
"""Delay after a failure to renew or take a lease."""

LEASE_CALL_SECONDS_MAX: Final = 10
"""Database timeout for a read or write of a lease."""

LEASE_READ_MAX: Final = 16
"""Leases that are read together in the search for a free node id."""

LEASE_UNKNOWN_MAX: Final = 3
"""Node ids per search for a free one whose allocation may have an unknown outcome."""

CACHE_BYTES_MAX: Final = 64 * MIB
"""Default size of the catalog's cache, measured as encoded; decoded objects are about three times
as large."""

CACHE_ENTRY_BYTES: Final = 256
"""Overhead counted per cache entry, so that the number of small entries is bounded."""

CACHE_EPOCHS: Final = 4_096
"""Counters that fence pointers out of the cache; pointers that share a counter are fenced
together."""

POINTER_SECONDS_MAX: Final = 10
"""Maximum age of a cached pointer: the staleness of a reader that gets no messages from writers."""

PEER_LINE_BYTES_MAX: Final = 128 * KIB
"""Message between instances; a longer one ends the connection."""

PEER_BATCH_MAX: Final = 32
"""Moved pointers per message; even with the longest names the message fits one line."""

PEER_QUEUE_MAX: Final = 10_000
"""Moved pointers that wait for one instance; further ones are not sent to it."""

PEER_CONNECTIONS_MAX: Final = 2_048
"""Connections that an instance accepts: twice the possible number of nodes."""

KEEP_ALIVE_SECONDS: Final = 75
"""Idle timeout of a connection.  Longer than the timeout of clients (httpx: 5 seconds): the server
must not close an idle connection first, because it cannot know that a request is on its way."""

PEER_CALL_SECONDS_MAX: Final = 5
"""How long an instance may take to accept a connection, to identify itself, or to continue
reading."""

PEER_RETRY_SECONDS_MAX: Final = 5
"""Maximum delay before a connection to an unreachable instance is retried."""

PEER_REFRESH_SECONDS: Final = 30
"""Interval at which the addresses of the other instances are read; a new one introduces itself."""

INDEX_SEGMENT_STRIPES_MAX: Final = 1_000
"""Stripes that one such object lists; a longer list is split."""

INDEX_BLOCK_ENTRIES: Final = 16
INDEX_BLOCK_BYTES: Final = 4 * KIB
"""Block of an index: the unit that is decoded to find a key, and encoded again to change one. It is
split at twice this size."""

INDEX_PREFETCH_STRIPES_MAX: Final = 16
"""Stripes that a listing reads together; it begins with one and doubles."""

INDEX_STRIPES_KEPT_MAX: Final = 64
"""Stripes that an open index caches."""

# ---- The hub -------------------------------------------------------------------------------------

SPACE_ID_LENGTH_MAX: Final = 255
"""Characters of the id of a space, a connector or a storage of the hub, which is part of URLs."""

PIPELINE_HANDLERS_MAX: Final = 32
"""Connectors per space."""

EVENT_DEPTH_MAX: Final = 16
"""Nesting of events sent from space to space; ends views of views, and cycles."""

VIEW_LAYERS_MAX: Final = 32
"""Spaces per view."""

VIEW_PIN_ATTEMPTS_MAX: Final = 4
"""Attempts to find a moment at which all storages of a view had their last version."""

HANDLER_ATTEMPTS_MAX: Final = 10
"""How often a handler rereads features that it is about to change, when concurrent writers change
them."""

TAG_GROUPS_MAX: Final = 100
"""Alternatives of tags that a handler can add to a query."""

TRANSFORM_STEPS_MAX: Final = 100
"""Operations per transformation."""

LOG_CHUNK_STATES: Final = 200
"""States of an activity log that are joined with their predecessors together."""

VIOLATION_LENGTH_MAX: Final = 500
"""Characters of the message about one broken rule."""

VIOLATIONS_PER_FEATURE_MAX: Final = 20
VIOLATIONS_MAX: Final = 1_000
"""Broken rules that are reported, per feature and per write."""

READ_CHUNK_FEATURES: Final = 2_000
"""Features of a streamed response that are in memory together."""

DELETED_IDS_MAX: Final = 100_000
"""Ids that the response to a deletion by query lists; the others are only counted."""

CONFIG_OBJECT_BYTES_MAX: Final = 256 * KIB
"""A storage, connector, space or role; it fits into one row of any catalog."""

CONFIG_TAGS_MAX: Final = 100
"""Tags of a space, a connector or a storage."""

CONFIG_TAG_BYTES_MAX: Final = 256
"""One such tag."""

PROVENANCE_MAX: Final = 100
"""Loads recorded in a space; the oldest is dropped when a new one is added."""

PROVENANCE_BYTES_MAX: Final = 2 * KIB
"""Record of one load."""

SPACE_GRACE_SECONDS: Final = 7 * 24 * 3_600
"""How long the collection of a deleted space can be restored."""

STORAGE_RELEASE_SECONDS: Final = 60
"""How long a storage that was removed from the configuration stays open, for requests that started
before."""

STORAGE_CLAIM_SECONDS: Final = 3_600
"""How long a realm that is about to add a storage blocks other realms from its location, when the
outcome remains unknown: far longer than a request can take."""

CONTENT_LOOKUPS_MAX: Final = 8
"""Collections that a list of spaces queries concurrently."""

EXACT_COUNTS_MAX: Final = 200
"""Collections without an estimate that one list of spaces counts; the others get no count."""

LOG_LOOKBACK_PAGE: Final = 10
"""Transactions that are read together to find the last one that changed features."""

COPY_PART_FEATURES: Final = 10_000
"""Features that a copy between spaces writes in one transaction; a larger copy has several
parts."""

COPY_PART_BYTES: Final = 32 * MIB
"""The same in bytes, as read from the source."""

COPIES_PARALLEL_MAX: Final = 4
"""Concurrent copies per worker: each holds a connection to its source all the time, and other
readers need connections too."""

COPY_FAILURES_MAX: Final = 1_000
"""Failed features, notices and violations that the report of a copy lists."""

PUBLISH_WAIT_SECONDS: Final = 2
"""How long a write over REST waits for the number of its version before it responds without it."""

DESCRIPTION_LENGTH_MAX: Final = 255
"""Characters of the description of a tag or a branch, and of a message over REST."""

VERSION_REF_LENGTH_MAX: Final = 128
"""Characters of a version reference: at most two names and a separator."""

PROPERTY_PATH_LENGTH_MAX: Final = 1_000
"""Characters of the property names in one parameter."""

HANDLE_LENGTH_MAX: Final = 16_000
"""Digits of the handle of an iteration: three for each byte of a cursor, which contains an id."""

RADIUS_METRES_MAX: Final = 1_000_000
"""Buffer distance of a geometry for clipping features or filtering a subscription. A search has no
such limit: it compares distances."""

SORT_KEYS_MAX: Final = 8
"""Properties by which an iteration is ordered."""

PARTS_MAX: Final = 1_000
"""Parts of an iteration."""

CLUSTERED_FEATURES_MAX: Final = 1_000_000
"""Features of an area that are counted per cell: their geometries are in memory together."""

JOINED_FEATURES_MAX: Final = 100_000
"""Features of an area that are dissolved to fewer ones: all of them are in memory together."""

ANSWER_CHUNK_BYTES: Final = 1 * MIB
"""Bytes of a streamed response that are joined before they are sent."""
JSON_SCHEMA_BYTES_MAX: Final = 256 * KIB
"""The JSON Schema of a validation."""

# ---- The server ----------------------------------------------------------------------------------
# Limits with a setting in `naksha.server.process.settings` are the defaults of these settings.

REQUEST_BODY_BYTES_MAX: Final = 32 * MIB
"""Decompressed body of a request. All of it is in memory, and parsed it is several times as
large."""

REQUEST_HEAD_BYTES_MAX: Final = 64 * KIB
"""Request line and header fields: a long query, a token, and fields that proxies add."""

REQUEST_HEAD_SECONDS_MAX: Final = 30
"""Timeout for receiving the head of a request."""

REQUEST_SECONDS_MAX: Final = 120.0
"""Timeout for the start of a response, and for each of its parts."""

REQUESTS_PARALLEL_MAX: Final = 64
"""Concurrent requests per worker; most of them wait for one of a few connections."""

ACTOR_PARALLEL_MAX: Final = 16
"""Concurrent requests per actor: as many as a storage has connections."""

ACTOR_QUEUE_MAX: Final = 512
"""Requests per actor that wait for a slot; further ones are rejected."""

QUEUE_SECONDS_MAX: Final = 10.0
"""How long a request waits for a slot."""

RETRY_AFTER_SECONDS: Final = 1
"""Retry-After of a rejected request."""

DRAIN_SECONDS_MAX: Final = 30.0
"""Grace period for running requests when the server is stopped."""

CONNECTIONS_MAX: Final = 10_000
"""Open connections per worker."""

CONFIG_SECONDS_MAX: Final = 1.0
"""Maximum age of the configuration that a worker uses."""

WORKERS_MAX: Final = 64
"""Worker processes per server."""

WORKER_RESTART_SECONDS_MAX: Final = 10.0
"""Maximum delay before the restart of a worker that ended soon after its start."""

WORKER_START_SECONDS_MAX: Final = 60.0
"""How long a worker may take to load, and the first one to serve."""

WORKER_SILENT_SECONDS_MAX: Final = 30.0
"""How long the event loop of a worker may be blocked before the worker is considered hung: much
longer than it takes to parse the largest body."""

READER_SECONDS_MAX: Final = 2.0
"""How long a streamed response may wait for its reader in total while it holds a database
connection; then the rest is spooled to a file, and the connection is released."""

SPOOL_BYTES_MAX: Final = 1024 * MIB
SPOOLS_BYTES_MAX: Final = 4 * 1024 * MIB
"""Spool files for slow readers: per response, and in total per process."""

STREAM_ID_LENGTH_MAX: Final = 128
"""Characters of the stream id that a client gives a request."""

GZIP_BYTES_MIN: Final = 1 * KIB
"""Smaller responses are not compressed."""

GZIP_PACKS_MAX: Final = 10_000
"""Consecutive gzip members of a compressed body."""

DISCONNECT_LOOK_SECONDS: Final = 0.05
"""Delay after which the server watches for a disconnect of the client; most requests end
earlier."""

HEALTH_SECONDS_MAX: Final = 5.0
"""Timeout of a health check of the catalog or a storage."""

METRICS_SAMPLE_SECONDS: Final = 5.0
"""Interval at which the state of storages and catalog is sampled."""

# ---- The change feed -----------------------------------------------------------------------------

FEED_TRANSACTIONS_DEFAULT: Final = 100
FEED_TRANSACTIONS_MAX: Final = 1_000
"""Transactions per page of a feed: default and maximum."""

FEED_FEATURES_MAX: Final = 1_000
"""Changes per page, which is in memory; a transaction with more is split over several pages."""

FEED_TAIL_TRANSACTIONS: Final = 10_000
"""Last transactions of a storage whose changed collections are cached."""

FEED_POSITION_LENGTH_MAX: Final = 1_500
"""Characters of a position: inside a transaction it contains a cursor, which contains an id."""

FEED_WAIT_SECONDS_MAX: Final = 60.0
"""How long a request for a page may wait for new transactions."""

FEED_HEARTBEAT_SECONDS: Final = 15.0
"""Interval of the heartbeat of an idle stream, and of the new check of its rights."""

FEED_RETRY_SECONDS: Final = 2
"""Reconnection delay for the client of a stream that ended."""

FEED_WATCHERS_MAX: Final = 1_000
"""Streams and waiting requests per worker."""

FEED_WATCHERS_PER_ACTOR_MAX: Final = 32
"""Streams and waiting requests per actor."""

# ---- Remote handlers -----------------------------------------------------------------------------

REMOTE_BODY_BYTES_MAX: Final = 32 * MIB
"""Event sent to a remote handler, or response to one. It is in memory at both ends."""

REMOTE_HEAD_BYTES_MAX: Final = 16 * KIB
"""Start line and header fields of such a request."""

REMOTE_CONNECT_SECONDS: Final = 5.0
REMOTE_SECONDS: Final = 30.0
"""Default timeouts for connecting to a remote handler and for its response; a connector can
override them."""

REMOTE_SECONDS_MAX: Final = 300.0
"""Maximum timeout that a connector can set; the timeout of the request itself applies as well."""

REMOTE_ATTEMPTS: Final = 3
"""Attempts to call a remote handler that cannot be reached, or does not respond to a read."""

REMOTE_PAUSE_SECONDS: Final = 0.1
"""Delay between two such attempts, doubled each time."""

REMOTE_CONNECTIONS_MAX: Final = 100
"""Open connections of a hub to remote handlers; further calls wait for one. Deliveries of
subscriptions use separate connections: one per subscription, and up to this many idle ones."""

REMOTE_CONNECTIONS_PER_TARGET_MAX: Final = 25
"""The same per host and port, so that one unresponsive target does not use all connections."""

REMOTE_KEEPALIVE_SECONDS: Final = 20.0
"""Idle timeout of a connection: much shorter than that of hosts."""

REMOTE_STEPS_MAX: Final = 100
"""How often a remote handler may forward a request while it handles one event."""

REMOTE_TARGETS_MAX: Final = 1_000
"""Targets that can be configured for a server."""

HOST_IDLE_SECONDS: Final = 75.0
"""How long a handler host keeps an idle connection."""

HOST_READ_SECONDS: Final = 30.0
"""How long a handler host waits for the rest of a request."""

HOST_CONNECTIONS_MAX: Final = 500
"""Open connections of a handler host; further ones are asked to retry later."""

HOST_EVENTS_MAX: Final = 1_000
"""Concurrent events of a handler host, including those that wait for a response of the hub."""

HOST_HANDLERS_MAX: Final = 256
"""Handlers that a handler host keeps, one per configuration; the least recently used one is
dropped."""

HOST_DRAIN_SECONDS: Final = 10.0
"""Grace period for running events when a handler host is stopped."""

SIGNATURE_SECONDS_MAX: Final = 300
"""Maximum age of a signed event, including clock skew."""

# ---- Authorization -------------------------------------------------------------------------------

TOKEN_BYTES_MAX: Final = 16 * KIB
"""Token; it is part of every request, and servers limit the head of a request to 64 KiB."""

TOKEN_KEYS_MAX: Final = 32
"""Keys for checking tokens. A token without a key id is checked with each of them, and its sender
may be anybody."""

TOKEN_KEY_BYTES_MAX: Final = 1 * MIB
"""Key file."""

TOKEN_KEYS_SECONDS: Final = 1
"""Minimum interval between checks for a change of a key file."""

TOKEN_LEEWAY_SECONDS: Final = 30
"""Tolerated clock skew between the issuer of a token and the server."""

TOKENS_KEPT_MAX: Final = 10_000
"""Cached verified tokens; one takes a few KB with its rights."""

SECRET_BYTES_MIN: Final = 32
"""Secret for HS256: as long as the hash, as RFC 7518 requires."""

RSA_BITS_MIN: Final = 2_048
"""Key for RS256, as RFC 7518 requires."""

# ---- Subscriptions -------------------------------------------------------------------------------

SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions per realm."""

SUBSCRIPTION_COLLECTIONS_MAX: Final = 100
"""Collections per subscription; without any it gets those of the whole storage."""

SUBSCRIPTION_KEEP_DAYS: Final = 7
"""Default time that history and log are kept for a subscription that lags behind."""

SUBSCRIPTION_KEEP_DAYS_MAX: Final = 366

SUBSCRIPTION_LEASE_SECONDS: Final = 10.0
"""Duration of an instance's lease of a subscription without renewal. After a crash of the instance,
this time plus the clock drift passes before another one takes over."""

SUBSCRIPTION_DRIFT_SECONDS: Final = 2.0
"""Tolerated clock drift between instances."""

SUBSCRIPTION_LOOK_SECONDS: Final = 1.0
"""Interval at which an instance scans for subscriptions without a delivering instance."""

SUBSCRIPTION_MOVE_SECONDS: Final = 30.0
"""How long a subscription is reserved for its designated instance before any may take it."""

SUBSCRIPTION_LEFTOVER_SECONDS: Final = 600.0
"""How long after its removal the leftovers of a subscription are cleaned up finally: by then every
instance knows of the removal, even one that was suspended for a while."""

SUBSCRIPTION_STOP_SECONDS: Final = 5.0
"""How long the instance waits for a delivery to stop."""

SUBSCRIPTION_WAIT_SECONDS: Final = 30.0
"""Longest single wait for new versions."""

SUBSCRIPTION_SAVE_SECONDS: Final = 0.5
"""Interval at which the position is saved: bounds what is delivered again after a crash, apart from
deliveries in flight."""

SUBSCRIPTION_RETRY_SECONDS: Final = 0.5
"""Initial delay after a failure, doubled with each further one."""

SUBSCRIPTION_RETRY_SECONDS_MAX: Final = 60.0

SUBSCRIPTION_PIN_SECONDS: Final = 30.0
"""Interval at which the pin of a subscription is moved."""

SUBSCRIPTION_REASON_LENGTH_MAX: Final = 1_000
"""Characters of the recorded reason of a failure."""

SUBSCRIPTION_DELIVERY_SECONDS_MAX: Final = 300.0
"""Timeout of one delivery, after which it counts as failed and is retried."""

JSON_PATH_LENGTH_MAX: Final = 1_000
JSON_PATH_SEGMENTS_MAX: Final = 32
"""Each segment may scan every value of a feature."""
TAG_RULES_MAX: Final = 100
"""Rules of a tag filter: each is applied to every written feature."""

EXPORT_LOCK_SECONDS_MAX: Final = 5.0
"""How long a delivery waits for another process that writes to the same file."""

REJECTS_MAX: Final = 10_000
"""Default number of rejected records after which a load is aborted."""

LOAD_FILES_REPORTED_MAX: Final = 100
"""Files that the report of a load lists; it counts all."""

LOAD_CHUNK_BYTES: Final = 16 * MIB
"""Approximate part of a GeoJSON file that one task processes; parsed it is several times as
large."""

REJECT_LENGTH_MAX: Final = 8_000
"""Characters reported of a rejected record, of its id and of the reason. All records rejected
within `REJECTS_MAX` are in the memory of one process."""

# ---- Jobs ----------------------------------------------------------------------------------------

JOBS_MAX: Final = 1_000
"""Jobs per realm, including ended ones that were not removed yet."""

JOBS_WAITING_MAX: Final = 100
"""Queued jobs per realm; further ones are rejected."""

JOBS_RUNNING_MAX: Final = 1
"""Default number of concurrent jobs per instance: each has a Spark session of its own."""

JOB_SPEC_BYTES_MAX: Final = 64 * KIB
"""Specification of a job."""

JOB_FILES_MAX: Final = 100_000
"""Files that a name or a pattern in a job specification may match; all of them are checked."""

JOB_ATTEMPTS_MAX: Final = 3
"""Attempts of a job whose instance crashed before it ended."""

JOB_LOOK_SECONDS: Final = 1.0
"""Interval at which an instance scans for jobs that no instance runs."""

JOB_SAVE_SECONDS: Final = 1.0
"""Interval at which the progress of a job is saved, and cancellation is checked."""

JOB_CANCEL_SECONDS_MAX: Final = 15.0
"""How long a cancelled job may take to end by itself."""

JOB_SETTLE_SECONDS_MAX: Final = 5.0
"""Further time to determine whether the job was written, and to drop its staged features."""

JOB_STOP_SECONDS_MAX: Final = 5.0
"""How long a job may take to end by itself when its instance is stopped; another instance then
restarts it."""

JOB_JAVA_SECONDS_MAX: Final = 5.0
"""How long the Java process may take to end after a job; then it is killed."""

JOB_KILL_SECONDS: Final = 25.0
"""Time after which the process of a cancelled job is killed, or of a job that has reported its end
but does not exit."""

JOB_KEEP_DAYS: Final = 30
"""How long an ended job is kept, unless it is removed before."""

JOB_SAID_LENGTH_MAX: Final = 2_000
"""Characters of one line of a job's log."""

JOB_LINE_BYTES_MAX: Final = 4 * MIB
"""Line of output of a job's process: a report may be long."""

JOB_REPORT_BYTES_MAX: Final = 128 * KIB
"""Report of a job that is stored by a hub; lists of a larger one are truncated."""

JOB_MESSAGE_LENGTH_MAX: Final = 8_000
"""Characters of the error message of a failed job, which a hub also stores."""

JOB_LOG_LINES_MAX: Final = 1_000
JOB_LOG_BYTES_MAX: Final = 200 * 1000
"""Kept part of a job's log, the newest lines; it must fit one row of the catalog."""

JOB_ERROR_LINES_MAX: Final = 50
"""Lines of a job's stderr that are written to the server's log when it fails."""

JOB_DESCRIBE_SECONDS_MAX: Final = 60.0
"""Timeout for listing the available jobs."""

SPARK_IDLE_STORAGES_MAX: Final = 4
"""Unused storages that a Spark process keeps open; only few are used alternately. Each may hold
some connections to its server."""

SPARK_PUSHED_IDS_MAX: Final = 10_000
"""Ids in a Spark filter that is pushed down; every task gets them."""

SPARK_PUSHED_VALUES_MAX: Final = 1_000
"""Other values in a filter that is pushed down."""

SPARK_STREAM_WAIT_SECONDS: Final = 0.5
"""Longest single wait of a stream for new versions; Spark polls again."""

SPARK_STREAM_IDLE_VERSIONS_MAX: Final = 1_000
"""Irrelevant versions after which a stream advances with an empty batch: its position must not
become so old that the log after it has expired."""

SPARK_STREAM_IDLE_SECONDS_MAX: Final = 3_600
"""Age of the position after which the stream advances by any version: the log is kept for at least
a day."""

SPARK_STREAM_TASK_ROWS: Final = 50_000
"""Approximate number of changes that one task of a stream reads."""

LOAD_BATCH_BYTES: Final = 4 * MIB
"""Approximate number of bytes of a file that a task of a load reads together."""

LOAD_BATCH_ROWS_MAX: Final = 2_000
"""Maximum number of rows in such a batch."""

EXPORT_COLUMNS_MAX: Final = 1_000
"""Properties that an export can write as separate columns."""

ARCHIVE_DAYS_MAX: Final = 365_000
"""Age in days from which history can be archived: a thousand years, so that the result is a valid
date."""

VERIFY_BRANCH_IDS_MAX: Final = 1_000
"""Changed features of a branch up to which a check reads only these; otherwise it reads the branch
as a whole."""

VERIFY_LOG_PART: Final = 100_000
"""Versions of the log that one task of a check reads."""

VERIFY_LOG_PAGE: Final = 1_000
"""Transactions that such a task has in memory."""

ARCHIVE_JOBS_KEPT: Final = 20
"""Last jobs that are recorded in an archive."""

ARCHIVE_VERSIONS_GROUP: Final = 100_000
"""Versions of an archive that are written together."""

MISMATCHES_MAX: Final = 10_000
"""Features with inconsistent indices that a storage reports; more would not help the diagnosis."""

VERIFY_RUNS_MAX: Final = 3
"""Attempts of a check that is restarted because history expired while it was read."""

VIOLATIONS_REPORTED_MAX: Final = 200
"""Violations of invariants that the report of a check lists in full; all of them are counted."""

FILES_REPORTED_MAX: Final = 200
"""Files that the report of an export lists; its manifest has all of them."""

CELLS_REPORTED_MAX: Final = 2_000
"""Cells that the report of a partitioning lists; its output has all of them."""
