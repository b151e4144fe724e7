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

SCHEMA_BYTES_MAX: Final = 63
"""The name of a schema in PostgreSQL, which would cut a longer one without a word."""

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

PROPERTY_CONDITIONS_MAX: Final = 100
"""Conditions of a property query, joined by AND."""

PROPERTY_VALUES_MAX: Final = 5_000
"""Values of a property query; each takes a few of `QUERY_VALUES_MAX`."""

SELECTION_PATHS_MAX: Final = 1_000
"""Properties that can be selected at once."""

TILE_LEVEL_MAX: Final = 30
"""Levels of tiles, of whichever scheme: a tile has a few centimetres then."""

TILE_MARGIN_PIXELS_MAX: Final = 256
"""The margin around a tile, in pixels of which a tile has 256: three by three tiles at most."""

HEXAGON_COUNTS_MAX: Final = 1_000_000
"""How often all features of one answer are counted, once in each hexagon that a feature touches."""

TILE_EXTENT_MAX: Final = 65_536
"""Units of a vector tile's grid, and of its buffer: sixteen times what is usual."""

STATISTICS_KEYS_MAX: Final = 1_000
"""Properties and tags that the statistics of a collection count one by one, those of most
features first."""

STATISTICS_BYTES_MAX: Final = 32 * MIB
"""What fast statistics read of a collection; of a larger one they look at a part."""

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

META_BYTES_MAX: Final = 1 * MIB
"""One feature beside a collection, as JSON."""
META_COUNT_MAX: Final = 1_000
"""Features beside one collection."""

PIN_NAME_BYTES_MAX: Final = 512
"""A pin is named after the object that needs it."""

MERGE_POINTS_MAX: Final = 1_000
"""Merges between the same two branches that are remembered: about 45 bytes each, in one object."""

LAYERS_MAX: Final = 9
"""Layers of a branch: at most 8 overlays, and main. Every overlay is one more anti-join of a
read."""

# ---- Trying again --------------------------------------------------------------------------------

RETRY_COUNT_MAX: Final = 10
"""Attempts of a single call or `run(fn)` after a serialisation failure.  Whoever fails
`RETRY_GATE_COUNT` times takes the collection's write gate, so the rest is only a safety net."""

RETRY_GATE_COUNT: Final = 3
"""Failures after which a writer takes the collection's write gate."""

LOCK_WAIT_SECONDS_MAX: int = 60
"""How long a statement of the library waits for a lock. The error then names its holder."""

RETRY_DELAY_MS_MIN: Final = 5
"""First pause between attempts, doubled each time with a random part."""

RETRY_DELAY_MS_MAX: Final = 1_000
"""Longest pause between two attempts."""

JOB_ID_BYTES_MAX: Final = 256
"""The id of a job that writes from many processes; it is kept and indexed."""

STAGING_LEASE_SECONDS: Final = 6 * 3600
"""How long staged features wait for more of their job, or for being applied, before they are swept.
As long as the slowest task of a job may take to begin; who stages renews it."""

STAGED_PARTS_MAX: Final = 20_000
"""Parts of one staged write: the tasks of a large Spark job."""

STAGED_OUTCOME_SECONDS_MAX: Final = 30.0
"""How long the storage is asked whether a staged write was applied, after the answer to its commit
was lost; until then a server that was started again should answer."""

STAGED_CHUNK_FEATURES: Final = 25_000
STAGED_CHUNK_BYTES: Final = 64 * MIB
"""What is in memory at once of staged features that are applied."""

BULK_BATCH_BYTES: Final = 4 * MIB
"""About how much of a split is read at once; one state may be larger."""

JOB_KEPT_DAYS: Final = 30
"""How long it is known of a job that it was applied; a repetition comes within minutes."""

IMPORT_PUBLICATION_SECONDS_MAX: Final = 60.0
"""How long a history that goes on waits for the publication of what was written before."""

# ---- The catalog ---------------------------------------------------------------------------------

CATALOG_ROW_BYTES_MAX: Final = 350 * 1000
"""The value of one row: some databases end at 400 kB a row or 512 kB a packet."""

CATALOG_OBJECT_BYTES_MAX: Final = 256 * MIB
"""An object over several rows; it is assembled in memory."""

CATALOG_BATCH_MAX: Final = 10_000
"""Objects of one bulk call."""

CATALOG_CALL_SECONDS_MAX: Final = 5
"""How long a database may take for one call; a third of what a commit has, so that there is time to
find out what became of it."""

CATALOG_SESSIONS_MAX: Final = 16
"""Connections of one process to a database server."""

CATALOG_STATEMENT_BYTES_MAX: Final = 4 * MIB
"""What is sent to a database at once; it may allow less. Others wait meanwhile on some."""

CATALOG_STATEMENT_ROWS_MAX: Final = 1_000
"""Rows that are written, deleted or scanned at once, for the same reason."""

OBJECT_TYPE_BYTES_MIN: Final = 2
OBJECT_TYPE_BYTES_MAX: Final = 32
"""The id of a type is in every reference to an object."""

POINTER_NAME_BYTES_MAX: Final = 512
"""A pointer's name; several databases end an index entry at 767 bytes, the realm included."""

REALM_ID_LENGTH_MAX: Final = 128
"""A realm's id is in the key of every row."""

PREVIOUS_POINTERS_MAX: Final = 20
"""What a pointer pointed to before, nearest first: how an unknown outcome is resolved."""

COMMIT_TAIL_MAX: Final = 20
"""Ancestors named in a commit, nearest first: a page of the log is one bulk read."""

COMMIT_SECONDS_MAX: Final = 15
"""How long a commit is tried. Far below the shortest grace of maintenance, so that nothing that a
commit wrote can be swept before it is referenced."""

COMMIT_RETRIES_MAX: Final = 10_000
"""How often a commit is tried within that time."""

COMMIT_GROUP_MAX: Final = 128
"""Commits that are written together and moved to with one swap."""

COMMIT_GROUP_BYTES_MAX: Final = 4 * MIB
"""A group that has become larger takes no further commit in."""

COMMIT_QUEUE_MAX: Final = 10_000
"""Commits that wait for one pointer; the next one is turned away."""

COMMIT_DELAY_MS_MIN: Final = 5
COMMIT_DELAY_MS_MAX: Final = 250
"""Pause after a lost swap: random, at first up to the former, doubled up to the latter."""

INDEX_KEY_BYTES_MAX: Final = 500
"""A key of an index."""

INDEX_EMBEDDED_BYTES_MAX: Final = 32 * 1000
"""The part of an index that is inside the commit; above it, it is spilled into stripes."""

INDEX_EMBEDDED_BYTES_MIN: Final = 4 * 1000
"""The same for an index that has few keys or none: every commit writes it."""

INDEX_ENTRY_BYTES: Final = 28
"""A usual entry of an index, as it is kept: what a commit adds."""

INDEX_STRIPE_BYTES_MAX: Final = 128 * 1000
"""A stripe of an index; a larger one is split, two neighbours below a half together are merged."""

INDEX_STRIPES_INLINE_MAX: Final = 20
"""Stripes that are listed in the commit itself; above it, the list is an object of its own."""

LOG_PAGE_MAX: Final = 1_000
"""Commits of one page of the catalog's log."""

LOG_WAIT_SECONDS_MAX: Final = 60
"""How long somebody may wait for the next commit with one call."""

REALM_QUARANTINE_SECONDS: Final = 3 * 24 * 3_600
"""How long a realm that has served is inactive at least before it can be purged."""

REALM_RELEASE_SECONDS_MAX: float = 7 * 24 * 3_600
"""How long the purge of a realm waits for storages that do not answer. Then its rows are deleted
although pins may be left in those storages."""

FENCE_SECONDS_MAX: Final = 10
"""How long a change of a realm's state tries to reach its pointers; then the next who opens the
realm goes on."""

OPEN_REALMS_MAX: Final = 1_000
"""Realms that a process keeps open though nobody uses them."""

# ---- Maintenance of the catalog ------------------------------------------------------------------

MAINTENANCE_GRACE_SECONDS: Final = 3 * 3_600
"""What was written later than that is not swept, whether something points to it or not."""

MAINTENANCE_GRACE_SECONDS_MIN: Final = 300
"""The shortest grace: far above COMMIT_SECONDS_MAX, with room for clocks that differ."""

MAINTENANCE_RUNS_KEPT: Final = 50
"""Runs that are remembered."""

MAINTENANCE_DELETE_BATCH: Final = 100
"""Rows that are looked at once more and deleted together; each may have CATALOG_ROW_BYTES_MAX."""

MAINTENANCE_BEAT_SECONDS: Final = 10
"""How often a run says that it is alive, and looks whether it was superseded."""

MAINTENANCE_NOTES_MAX: Final = 100
"""Problems that a report tells one by one; of the others it has the number."""

HISTORY_COMMITS_KEPT: Final = 1_000
HISTORY_SECONDS_KEPT: Final = 30 * 24 * 3_600
"""How much of a pointer's log is kept when nobody says otherwise: whichever is more."""

HISTORY_PIN_SECONDS_MAX: Final = 30 * 24 * 3_600
"""A consumer that has not moved its pin for so long does not hold history any more."""

CONSUMER_BYTES_MAX: Final = 256
"""The name of a consumer; it is a part of an index key."""

MARKS_EXACT_MAX: Final = 4_000_000
"""Ids that maintenance keeps exactly, in 8 bytes each; more of them become a filter."""

MARKS_PENDING_MAX: Final = 65_536
"""Ids that are sorted in at once."""

MARKS_FILTER_GROWTH: Final = 4
"""A filter is made for so many times what did not fit, or for what the last run has marked."""

MARKS_FILTER_MAX: Final = 400_000_000
"""Ids that a filter is made for at most; it has 1.2 GB then."""

MARKS_FILTER_ONE_IN: Final = 100_000
"""A filter of the right size retains one in so many pieces of garbage by mistake."""

MARKS_FILTER_ONE_IN_MIN: Final = 20_000
"""With a filter that is worse nothing is deleted; the next run gets a larger one."""

TRANSFER_RECORD_BYTES_MAX: Final = 1 * MIB
"""One record of an exported realm: a row, and what is around it."""

ID_WAIT_SECONDS_MAX: Final = 1
"""How long an id is waited for when its millisecond has no more: only a clock that stands still
makes it this long."""

CLOCK_JUMP_WARNING_SECONDS: Final = 2
"""A wall clock that goes forward by more at once is worth a line in the log: leases end early."""

CLOCK_SKEW_SECONDS_MAX: Final = 60
"""Maintenance of the catalog deletes nothing while the clock of an instance differs by more from
the database's."""

CLOCK_SKEW_IGNORED_SECONDS: Final = 1
"""A clock that differs by less is not corrected: that much may be the network."""

CLOCK_CHECK_SECONDS: Final = 60
"""How often an instance compares its clock with the database's."""

CLOCK_READ_ATTEMPTS: Final = 3
"""How often the database is asked for its time when the answer takes too long to be exact."""

LEASE_SECONDS: Final = 3_600
"""How long a node id is leased; so long a process gives ids without reaching the database."""

LEASE_RENEW_SECONDS: Final = 900
"""A lease is renewed when it has no more than this left."""

LEASE_DRIFT_SECONDS: Final = 5
"""How much clocks of several machines may differ before one takes another's lease too early. Ids
stay unique even then, but the former holder loses its node."""

LEASE_RETRY_SECONDS: Final = 2
"""Pause after a lease could not be renewed or taken."""

LEASE_CALL_SECONDS_MAX: Final = 10
"""How long the database may take for a read or write of a lease."""

LEASE_READ_MAX: Final = 16
"""Leases that are read at once by a process that looks for a free node id."""

LEASE_UNKNOWN_MAX: Final = 3
"""Node ids of which a process that looks for a free one may not learn whether it got them."""

CACHE_BYTES_MAX: Final = 64 * MIB
"""What a catalog keeps in memory by default, counted as it is encoded; decoded it is about three
times as much."""

CACHE_ENTRY_BYTES: Final = 256
"""What an entry of the cache counts beside its encoding, so that many small ones are bounded."""

CACHE_EPOCHS: Final = 4_096
"""Counters that fence pointers out of the cache; pointers that share one are fenced together."""

POINTER_SECONDS_MAX: Final = 10
"""How long a pointer is served from the cache after it was read: how stale a reader may be who
gets no messages from writers."""

PEER_LINE_BYTES_MAX: Final = 128 * KIB
"""A message between instances; a longer one ends the connection."""

PEER_BATCH_MAX: Final = 32
"""Moved pointers of one message; with the longest names it is still within a line."""

PEER_QUEUE_MAX: Final = 10_000
"""Moved pointers that wait for one instance; further ones are not sent to it."""

PEER_CONNECTIONS_MAX: Final = 2_048
"""Connections that an instance accepts: twice as many as there can be nodes."""

KEEP_ALIVE_SECONDS: Final = 75
"""How long a connection may be idle.  Longer than clients keep theirs (httpx: 5 seconds): whoever
is the first to close an idle connection must not be the one who cannot know that a request is on
its way."""

PEER_CALL_SECONDS_MAX: Final = 5
"""How long an instance may take to accept a connection, to identify itself, or to read on."""

PEER_RETRY_SECONDS_MAX: Final = 5
"""Longest pause before an instance that cannot be reached is tried again."""

PEER_REFRESH_SECONDS: Final = 30
"""How often the addresses of the other instances are looked up; a new one introduces itself."""

INDEX_SEGMENT_STRIPES_MAX: Final = 1_000
"""Stripes that one such object lists; a longer list is cut into several."""

INDEX_BLOCK_ENTRIES: Final = 16
INDEX_BLOCK_BYTES: Final = 4 * KIB
"""A block of an index: what is decoded to find one key, and encoded anew to change one. It is cut
when it is twice as large."""

INDEX_PREFETCH_STRIPES_MAX: Final = 16
"""Stripes that a listing reads at once; it begins with one and doubles."""

INDEX_STRIPES_KEPT_MAX: Final = 64
"""Stripes that an open index keeps after they were read."""

# ---- The hub -------------------------------------------------------------------------------------

SPACE_ID_LENGTH_MAX: Final = 255
"""Characters of the id of a space, a connector or a storage of the hub: a part of a URL."""

PIPELINE_HANDLERS_MAX: Final = 32
"""Connectors of one space."""

EVENT_DEPTH_MAX: Final = 16
"""Spaces that send to each other: a view of views ends here, and so does a circle."""

VIEW_LAYERS_MAX: Final = 32
"""Spaces of one view."""

VIEW_PIN_ATTEMPTS_MAX: Final = 4
"""Looks for a moment at which all storages of a view had their last version."""

HANDLER_ATTEMPTS_MAX: Final = 10
"""How often a handler reads again what it is about to change, when others change it meanwhile."""

TAG_GROUPS_MAX: Final = 100
"""Alternatives of tags that a handler adds to a query."""

TRANSFORM_STEPS_MAX: Final = 100
"""Operations of one transformation."""

LOG_CHUNK_STATES: Final = 200
"""States of an activity log that are joined with those before them at once."""

VIOLATION_LENGTH_MAX: Final = 500
"""Characters of what is told of one broken rule."""

VIOLATIONS_PER_FEATURE_MAX: Final = 20
VIOLATIONS_MAX: Final = 1_000
"""Broken rules that are told, of one feature and of one write."""

READ_CHUNK_FEATURES: Final = 2_000
"""Features of one answer that are in memory together, when it is streamed."""

DELETED_IDS_MAX: Final = 100_000
"""Ids that the answer to a deletion by query names; of the others it has the number."""

REALM_CONFIG_OBJECTS_MAX: Final = 100_000
"""Storages, connectors, spaces and roles of one realm."""

CONFIG_OBJECT_BYTES_MAX: Final = 256 * KIB
"""A storage, connector, space or role; it fits into one row of any catalog."""

CONFIG_TAGS_MAX: Final = 100
"""Tags of a space, a connector or a storage."""

CONFIG_TAG_BYTES_MAX: Final = 256
"""One of them."""

PROVENANCE_MAX: Final = 100
"""Loads that a space remembers; an older one goes when a new one comes."""

PROVENANCE_BYTES_MAX: Final = 2 * KIB
"""What is noted of one load."""

SPACE_GRACE_SECONDS: Final = 7 * 24 * 3_600
"""How long the collection of a deleted space can be restored."""

STORAGE_RELEASE_SECONDS: Final = 60
"""How long a storage that no configuration names any more stays open, for requests that began
before."""

STORAGE_CLAIM_SECONDS: Final = 3_600
"""How long a realm that is about to keep a storage keeps other realms from its place, when nobody
learns how that ended: far longer than a request can take."""

CONTENT_LOOKUPS_MAX: Final = 8
"""Collections of which a list of spaces asks at the same time."""

EXACT_COUNTS_MAX: Final = 200
"""Collections without an estimate that one list of spaces counts; the others get no count."""

LOG_LOOKBACK_PAGE: Final = 10
"""Transactions that are read at once to find the last one that changed features."""

COPY_PART_FEATURES: Final = 10_000
"""Features that a copy between spaces writes with one transaction; it is one part of more."""

COPY_PART_BYTES: Final = 32 * MIB
"""The same in bytes, as they came from the source."""

COPIES_PARALLEL_MAX: Final = 4
"""Copies of one worker at once: each has a connection to its source as long as it takes, and others
want to read too."""

COPY_FAILURES_MAX: Final = 1_000
"""Failed features, notices and violations that the report of a copy tells one by one."""

PUBLISH_WAIT_SECONDS: Final = 2
"""How long a write over REST waits for the number of its version before it answers without."""

DESCRIPTION_LENGTH_MAX: Final = 255
"""Characters of what is said about a tag or a branch, and of a message over REST."""

VERSION_REF_LENGTH_MAX: Final = 128
"""Characters of a version reference: two names and a separator at most."""

PROPERTY_PATH_LENGTH_MAX: Final = 1_000
"""Characters of the names of properties in one parameter."""

HANDLE_LENGTH_MAX: Final = 16_000
"""Digits of the handle of an iteration: three for each byte of a cursor, which holds an id."""

RADIUS_METRES_MAX: Final = 1_000_000
"""How far a geometry is grown as a shape, to clip features or to filter a subscription. A search
has no such limit: it compares distances."""

SORT_KEYS_MAX: Final = 8
"""Properties by which an iteration is ordered."""

PARTS_MAX: Final = 1_000
"""Parts that an iteration is cut into."""

CLUSTERED_FEATURES_MAX: Final = 1_000_000
"""Features of an area that are counted in cells: their geometries are in memory together."""

JOINED_FEATURES_MAX: Final = 100_000
"""Features of an area that are joined to fewer ones: all of them are in memory together."""

ANSWER_CHUNK_BYTES: Final = 1 * MIB
"""Of a streamed answer so much is joined before it is sent."""
JSON_SCHEMA_BYTES_MAX: Final = 256 * KIB
"""The JSON Schema of a validation."""

# ---- The server ----------------------------------------------------------------------------------
# What has a setting in `naksha.server.process.settings` has its default here.

REQUEST_BODY_BYTES_MAX: Final = 32 * MIB
"""The body of a request, unpacked. All of it is in memory, and parsed several times as much."""

REQUEST_HEAD_BYTES_MAX: Final = 64 * KIB
"""Line and header fields of a request: a long query, a token, and whatever proxies add."""

REQUEST_HEAD_SECONDS_MAX: Final = 30
"""How long a connection may take to bring the head of a request."""

REQUEST_SECONDS_MAX: Final = 120.0
"""How long an answer may take to begin, and each of its parts to follow."""

REQUESTS_PARALLEL_MAX: Final = 64
"""Requests that one worker serves at once; most of them wait for one of a few connections."""

ACTOR_PARALLEL_MAX: Final = 16
"""The same of one actor: as many as a storage has connections."""

ACTOR_QUEUE_MAX: Final = 512
"""Requests of one actor that wait for their turn; one more is turned away."""

QUEUE_SECONDS_MAX: Final = 10.0
"""How long a request waits for its turn."""

RETRY_AFTER_SECONDS: Final = 1
"""When who was turned away should come again."""

DRAIN_SECONDS_MAX: Final = 30.0
"""How long running requests may take to end when the server is stopped."""

CONNECTIONS_MAX: Final = 10_000
"""Open connections of one worker."""

CONFIG_SECONDS_MAX: Final = 1.0
"""How old the configuration may be that a worker uses."""

WORKERS_MAX: Final = 64
"""Processes of one server."""

WORKER_RESTART_SECONDS_MAX: Final = 10.0
"""Longest pause before a worker is started again that ends soon after it began."""

WORKER_START_SECONDS_MAX: Final = 60.0
"""How long a worker may take to load, and the first one to serve."""

WORKER_SILENT_SECONDS_MAX: Final = 30.0
"""How long the loop of a worker may do nothing but one thing before it is taken for hung: much
longer than the largest body takes to be read."""

READER_SECONDS_MAX: Final = 2.0
"""How long a streamed answer waits for its reader, all waits together, with a connection to the
database in its hands; what is left goes to a file then, and the connection to others."""

SPOOL_BYTES_MAX: Final = 1024 * MIB
SPOOLS_BYTES_MAX: Final = 4 * 1024 * MIB
"""What may be in files for readers who are slow: of one answer, and of all in one process."""

STREAM_ID_LENGTH_MAX: Final = 128
"""Characters of the name that a client gives a request."""

GZIP_BYTES_MIN: Final = 1 * KIB
"""A smaller answer is not packed."""

GZIP_PACKS_MAX: Final = 10_000
"""A packed body has at most so many packs one after the other."""

DISCONNECT_LOOK_SECONDS: Final = 0.05
"""After this time it is watched whether the client is there; most answers are done by then."""

HEALTH_SECONDS_MAX: Final = 5.0
"""How long the catalog or a storage may take to show that it is there."""

METRICS_SAMPLE_SECONDS: Final = 5.0
"""How often the state of storages and catalog is measured."""

# ---- The change feed -----------------------------------------------------------------------------

FEED_TRANSACTIONS_DEFAULT: Final = 100
FEED_TRANSACTIONS_MAX: Final = 1_000
"""Transactions that are looked at for one page of a feed, if nothing else is asked for and at
most."""

FEED_FEATURES_MAX: Final = 1_000
"""Changes of one page, which is in memory; a transaction with more comes in parts."""

FEED_TAIL_TRANSACTIONS: Final = 10_000
"""Last transactions of a storage of which it is known which collections they touched."""

FEED_POSITION_LENGTH_MAX: Final = 1_500
"""Characters of a position: inside a transaction it has a cursor, which holds an id."""

FEED_WAIT_SECONDS_MAX: Final = 60.0
"""How long a request for a page may wait for something new."""

FEED_HEARTBEAT_SECONDS: Final = 15.0
"""How often a stream is told that nothing happened; and looks at its rights anew."""

FEED_RETRY_SECONDS: Final = 2
"""When the client of a stream that ended should come again."""

FEED_WATCHERS_MAX: Final = 1_000
"""Streams, and requests that wait, of one worker."""

FEED_WATCHERS_PER_ACTOR_MAX: Final = 32
"""The same of one actor."""

# ---- Handlers that run elsewhere -----------------------------------------------------------------

REMOTE_BODY_BYTES_MAX: Final = 32 * MIB
"""An event, or an answer to one, on its way to a remote handler or back. It is in memory at both
ends."""

REMOTE_HEAD_BYTES_MAX: Final = 16 * KIB
"""Line and header fields of such a request."""

REMOTE_CONNECT_SECONDS: Final = 5.0
REMOTE_SECONDS: Final = 30.0
"""How long a remote handler may take to be reached, and to answer, unless its connector says so."""

REMOTE_SECONDS_MAX: Final = 300.0
"""More than this a connector cannot grant; nor more than the request itself has."""

REMOTE_ATTEMPTS: Final = 3
"""How often a remote handler is called that cannot be reached, or does not answer a read."""

REMOTE_PAUSE_SECONDS: Final = 0.1
"""Between two such calls; twice as long every time."""

REMOTE_CONNECTIONS_MAX: Final = 100
"""Open connections of a hub to remote handlers; a call waits for one. Deliveries of subscriptions
have others: as many as there are subscriptions, and so many that nobody uses."""

REMOTE_CONNECTIONS_PER_TARGET_MAX: Final = 25
"""The same to one host and port, so that one which does not answer leaves some to the others."""

REMOTE_KEEPALIVE_SECONDS: Final = 20.0
"""How long a connection is kept that nobody uses: a good deal less than hosts do."""

REMOTE_STEPS_MAX: Final = 100
"""How often a remote handler may send something on while it handles one event."""

REMOTE_TARGETS_MAX: Final = 1_000
"""Targets that a server may be told."""

HOST_IDLE_SECONDS: Final = 75.0
"""How long a host of handlers keeps a connection that nobody uses."""

HOST_READ_SECONDS: Final = 30.0
"""How long a request may take to come to a host, once it has begun."""

HOST_CONNECTIONS_MAX: Final = 500
"""Open connections of a host; one more is told to come later."""

HOST_EVENTS_MAX: Final = 1_000
"""Events that a host handles at once, those included that wait for an answer of the hub."""

HOST_HANDLERS_MAX: Final = 256
"""Handlers that a host keeps, one for each configuration; the one not used for longest goes."""

HOST_DRAIN_SECONDS: Final = 10.0
"""How long events may take to end when a host is stopped."""

SIGNATURE_SECONDS_MAX: Final = 300
"""How old a signed event may be, and how far clocks may differ."""

# ---- Who may do what -----------------------------------------------------------------------------

TOKEN_BYTES_MAX: Final = 16 * KIB
"""A token; it comes with every request, and servers end the head of a request at 64 KiB."""

TOKEN_KEYS_MAX: Final = 32
"""Keys that tokens are checked with. A token that names none is checked with each of them, and
whoever sends it need not be anybody."""

TOKEN_KEY_BYTES_MAX: Final = 1 * MIB
"""A file of keys."""

TOKEN_KEYS_SECONDS: Final = 1
"""How often it is looked whether a file of keys has changed, at most."""

TOKEN_LEEWAY_SECONDS: Final = 30
"""How much the clock of who made a token may differ from ours."""

TOKENS_KEPT_MAX: Final = 10_000
"""Tokens that need not be checked anew; one takes a few KB with its rights."""

SECRET_BYTES_MIN: Final = 32
"""A secret for HS256: as long as the hash, as RFC 7518 demands."""

RSA_BITS_MIN: Final = 2_048
"""A key for RS256, as RFC 7518 demands."""

# ---- Subscriptions -------------------------------------------------------------------------------

SUBSCRIPTIONS_MAX: Final = 10_000
"""Of a realm."""

SUBSCRIPTION_COLLECTIONS_MAX: Final = 100
"""Collections that one names; without any it gets those of the whole storage."""

SUBSCRIPTION_KEEP_DAYS: Final = 7
"""For so long history and log are kept for a subscription that is behind, unless it says more."""

SUBSCRIPTION_KEEP_DAYS_MAX: Final = 366

SUBSCRIPTION_LEASE_SECONDS: Final = 10.0
"""How long an instance has a subscription without prolonging it: so long it takes until another
one takes over from one that has died, and the drift of clocks."""

SUBSCRIPTION_DRIFT_SECONDS: Final = 2.0
"""How much the clocks of instances may differ."""

SUBSCRIPTION_LOOK_SECONDS: Final = 1.0
"""How often an instance looks for subscriptions that nobody delivers."""

SUBSCRIPTION_MOVE_SECONDS: Final = 30.0
"""How long a subscription waits for the instance that shall have it, before any may have it."""

SUBSCRIPTION_LEFTOVER_SECONDS: Final = 600.0
"""How long after its removal what a subscription has left is cleared away for good: by then every
instance knows of it, also one that was stopped for a while."""

SUBSCRIPTION_STOP_SECONDS: Final = 5.0
"""How long a delivery that is to end is waited for."""

SUBSCRIPTION_WAIT_SECONDS: Final = 30.0
"""How long is waited for news at once."""

SUBSCRIPTION_SAVE_SECONDS: Final = 0.5
"""How much is delivered again after a death, at the most, besides what was under way."""

SUBSCRIPTION_RETRY_SECONDS: Final = 0.5
"""The first pause after a failure; each one that follows is twice as long."""

SUBSCRIPTION_RETRY_SECONDS_MAX: Final = 60.0

SUBSCRIPTION_PIN_SECONDS: Final = 30.0
"""How often the pin of a subscription is moved."""

SUBSCRIPTION_REASON_LENGTH_MAX: Final = 1_000
"""What is told of a failure."""

SUBSCRIPTION_DELIVERY_SECONDS_MAX: Final = 300.0
"""How long one delivery may take before it counts as failed, and is tried again."""

JSON_PATH_LENGTH_MAX: Final = 1_000
JSON_PATH_SEGMENTS_MAX: Final = 32
"""Each of them may look at every place of a feature."""
TAG_RULES_MAX: Final = 100
"""Rules of a tag filter: each is applied to every feature that is written."""

EXPORT_LOCK_SECONDS_MAX: Final = 5.0
"""How long a delivery waits for another process that writes to the same file."""

REJECTS_MAX: Final = 10_000
"""How many records of a load may be rejected before it is given up, unless told otherwise."""

LOAD_FILES_TOLD_MAX: Final = 100
"""Files that the report of a load names; it counts all."""

LOAD_CHUNK_BYTES: Final = 16 * MIB
"""About how much of a file of GeoJSON is in the hands of a task at once; what is made of it is
several times as much."""

REJECT_LENGTH_MAX: Final = 8_000
"""Characters that are told of a rejected record, of its id and of the reason. All that is rejected
within `REJECTS_MAX` is in the memory of one process."""

# ---- Jobs ----------------------------------------------------------------------------------------

JOBS_MAX: Final = 1_000
"""Of a realm, those included that have ended and were not removed yet."""

JOBS_WAITING_MAX: Final = 100
"""Jobs of a realm that wait for an instance which has time; one more is turned away."""

JOBS_RUNNING_MAX: Final = 1
"""Jobs that one instance runs at once, unless it is told otherwise: each has a Spark of its own."""

JOB_SPEC_BYTES_MAX: Final = 64 * KIB
"""What a job is told to do."""

JOB_FILES_MAX: Final = 100_000
"""Files that a name or a pattern may stand for which a client gives to a job; all are looked at."""

JOB_ATTEMPTS_MAX: Final = 3
"""How often a job begins whose instance has died before it ended."""

JOB_LOOK_SECONDS: Final = 1.0
"""How often an instance looks for jobs that nobody runs."""

JOB_SAVE_SECONDS: Final = 1.0
"""How often it is kept how far a job is, and looked whether it shall end."""

JOB_CANCEL_SECONDS_MAX: Final = 15.0
"""How long a job may take to end by itself after it was cancelled."""

JOB_SETTLE_SECONDS_MAX: Final = 5.0
"""How long it may take after that to ask whether it was written, and to drop what was staged."""

JOB_STOP_SECONDS_MAX: Final = 5.0
"""How long a job may take to end by itself when its instance is stopped; another one begins it
anew."""

JOB_JAVA_SECONDS_MAX: Final = 5.0
"""How long Java may take to end after a job; then it is killed."""

JOB_KILL_SECONDS: Final = 25.0
"""After this time the process of a cancelled job is killed, or that of a job that has told its end
and does not end."""

JOB_KEEP_DAYS: Final = 30
"""How long a job that has ended is kept, unless somebody removes it before."""

JOB_SAID_LENGTH_MAX: Final = 2_000
"""Characters of one line of a job's log."""

JOB_LINE_BYTES_MAX: Final = 4 * MIB
"""What the process of a job may tell at once: a report may be long."""

JOB_REPORT_BYTES_MAX: Final = 128 * KIB
"""The report of a job that is kept by a hub; of a larger one its lists are cut."""

JOB_MESSAGE_LENGTH_MAX: Final = 8_000
"""Characters of what is said of a job that failed; a hub keeps it, too."""

JOB_LOG_LINES_MAX: Final = 1_000
JOB_LOG_BYTES_MAX: Final = 200 * 1000
"""What is kept of a job's log, the newest lines; it must fit one row of the catalog."""

JOB_ERROR_LINES_MAX: Final = 50
"""Lines of what the process of a job wrote to stderr that go to the server's log when it fails."""

JOB_DESCRIBE_SECONDS_MAX: Final = 60.0
"""How long it may take to learn which jobs there are."""

SPARK_IDLE_STORAGES_MAX: Final = 4
"""Storages that a process of Spark keeps open although nobody uses them: whoever uses one often
used few others since. Each may hold some connections to its server."""

SPARK_PUSHED_IDS_MAX: Final = 10_000
"""Ids that a filter of Spark may name to be handed on; every task gets them."""

SPARK_PUSHED_VALUES_MAX: Final = 1_000
"""Other values that it may name."""

SPARK_STREAM_WAIT_SECONDS: Final = 0.5
"""How long a stream waits for news at once; Spark asks again."""

SPARK_STREAM_IDLE_VERSIONS_MAX: Final = 1_000
"""Versions of no interest to a stream after which it takes note of them, with an empty batch: its
position must not grow so old that nobody can tell any more what came after it."""

SPARK_STREAM_IDLE_SECONDS_MAX: Final = 3_600
"""How old its position may be before it takes note of any: the log is kept for a day at least."""

SPARK_STREAM_TASK_ROWS: Final = 50_000
"""About how many changes one task of a stream reads."""

LOAD_BATCH_BYTES: Final = 4 * MIB
"""About how much of a file a task of a load reads at once."""

LOAD_BATCH_ROWS_MAX: Final = 2_000
"""How many rows that may be."""

EXPORT_COLUMNS_MAX: Final = 1_000
"""Properties that an export may have as columns of their own."""

ARCHIVE_DAYS_MAX: Final = 365_000
"""The age in days from which on history can be archived: a thousand years, so that the day is one
of the calendar."""

VERIFY_BRANCH_IDS_MAX: Final = 1_000
"""Features that a branch may have changed for a check to read only these of it; otherwise it reads
the branch as a whole."""

VERIFY_LOG_PART: Final = 100_000
"""Versions of the log that one task of a check reads."""

VERIFY_LOG_PAGE: Final = 1_000
"""Transactions that it has in its hands at once."""

ARCHIVE_JOBS_KEPT: Final = 20
"""Jobs that an archive remembers, the last ones."""

ARCHIVE_VERSIONS_GROUP: Final = 100_000
"""Versions of an archive that are written at once."""

MISMATCHES_MAX: Final = 10_000
"""Features that a storage tells of whose indices are wrong; who has more knows enough."""

VERIFY_RUNS_MAX: Final = 3
"""How often a check begins because history expired while it was read."""

VIOLATIONS_TOLD_MAX: Final = 200
"""Violations of invariants that the report of a check has in full; all of them are counted."""

FILES_TOLD_MAX: Final = 200
"""Files that the report of an export names; its manifest has all of them."""

CELLS_TOLD_MAX: Final = 2_000
"""Cells that the report of a partitioning has; its output has all of them."""
