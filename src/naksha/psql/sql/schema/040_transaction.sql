-- A single transaction: its author, time and number, and what it changed (the log).

-- Errors carry a JSON detail (collection, feature, field, head) for the client library.
CREATE OR REPLACE FUNCTION naksha_raise(
    code text, message text, detail jsonb DEFAULT '{}', hint text DEFAULT '') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail::text, HINT = hint;
END $$;

-- Name of a setting of this storage: one transaction may write to two storages.
CREATE OR REPLACE FUNCTION naksha_var(name text) RETURNS text
STABLE
RETURN 'naksha.' || name || '_' || 'naksha_tx_object_id_seq'::regclass::oid;

-- Marks the statements of the calling function as the storage's own, which triggers ignore
-- (naksha_trigger_when). This holds at the present trigger depth only: a user's trigger that such a
-- statement fires is one level deeper, and its writes are versioned like any plain SQL
-- (docs/decisions/0092). The caller has `SET naksha.depth = ''` among its settings, which ends the
-- mark.
CREATE OR REPLACE FUNCTION naksha_mark_own() RETURNS text
VOLATILE
RETURN set_config('naksha.depth', pg_trigger_depth()::text, true);

-- Start time of the transaction; a dated transaction (history import) brings its own.
CREATE OR REPLACE FUNCTION naksha_now() RETURNS timestamptz
STABLE
RETURN coalesce(nullif(current_setting('naksha.now', true), '')::timestamptz, now());

-- A time as `naksha.now` holds it: the same under every DateStyle and TimeZone.
CREATE OR REPLACE FUNCTION naksha_time_text(at timestamptz) RETURNS text
STABLE
RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00';

-- A history import comes after all transactions of the storage and not after the present.
CREATE OR REPLACE FUNCTION naksha_check_import(at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF at > clock_timestamp() OR at < '0001-01-01 00:00:00+00' THEN
        PERFORM naksha_raise('N0000', CASE WHEN at > clock_timestamp()
            THEN format('The time %s lies in the future; an imported transaction must have a past '
                        'time', naksha_time_text(at))
            ELSE 'The time of an imported transaction must be in the year 1 or later' END,
            '{"field": "at_ms"}');
    END IF;
    IF at < (SELECT max(seq_ts) FROM naksha_version)
       OR naksha_txn(at, 0) < (SELECT naksha_day_txn(naksha_txn_day(last_value))
                                 FROM naksha_tx_object_id_seq WHERE is_called) THEN
        PERFORM naksha_raise('N0009',
            'The storage has transactions later than the imported one at ' || naksha_time_text(at),
            '{"field": "at"}', 'Import the history into a storage without later transactions');
    END IF;
END $$;

-- A transaction has one application, author and time. It may include another storage of the
-- database, with the same values.
CREATE OR REPLACE FUNCTION naksha_check_started(who text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    xid text := pg_current_xact_id()::text;
BEGIN
    IF current_setting('naksha.xid', true) IS DISTINCT FROM xid THEN
        RETURN;
    END IF;
    IF current_setting(naksha_var('started'), true) IS NOT DISTINCT FROM xid
       OR who <> ARRAY[current_setting('naksha.app_id'), current_setting('naksha.author'),
                       current_setting('naksha.now')] THEN
        PERFORM naksha_raise('N0009', 'naksha_tx_start was already called in this transaction',
            '{"field": "app_id"}', 'Commit before you start another transaction');
    END IF;
END $$;

-- `at` dates the transaction. A history import must be later than everything in the storage; an
-- injected clock (`import` false) is not checked.
CREATE OR REPLACE FUNCTION naksha_tx_start(
    app_id text, author text DEFAULT NULL, at timestamptz DEFAULT NULL, import bool DEFAULT true)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF coalesce(app_id, '') = '' THEN
        PERFORM naksha_raise('N0000', 'The application id must not be empty',
            '{"field": "app_id"}', 'Pass the name of your program to naksha_tx_start');
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM naksha_raise('N0009', 'Writers must use the isolation level READ COMMITTED',
            '{}', 'Begin the transaction with ISOLATION LEVEL READ COMMITTED');
    END IF;
    IF current_setting('transaction_read_only') = 'on' THEN
        PERFORM naksha_raise('25006', 'The storage is read-only here: the server, the role or the '
                                      'session does not allow writes');
    END IF;
    IF import AND at IS NOT NULL THEN
        PERFORM naksha_check_import(at);
    END IF;
    PERFORM naksha_check_started(
        ARRAY[app_id, coalesce(author, ''), coalesce(naksha_time_text(at), '')]);
    -- The values carry the transaction's id, so that values set for the session are never used.
    PERFORM set_config('naksha.xid', pg_current_xact_id()::text, true),
            set_config(naksha_var('started'), pg_current_xact_id()::text, true),
            set_config('naksha.app_id', app_id, true),
            set_config('naksha.author', coalesce(author, ''), true),
            set_config('naksha.now', coalesce(naksha_time_text(at), ''), true);
END $$;

CREATE OR REPLACE FUNCTION naksha_app_id() RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('naksha.xid', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
        PERFORM naksha_raise('N0000', 'No application id is set in this transaction',
            '{"field": "app_id"}', 'Call naksha_tx_start(app_id, author) first in the transaction');
    END IF;
    RETURN current_setting('naksha.app_id');
END $$;

CREATE OR REPLACE FUNCTION naksha_author() RETURNS text
STABLE
RETURN nullif(current_setting('naksha.author', true), '');

-- The layers of the branch that this transaction works on, topmost first, each as [overlay, txn];
-- null on main.
CREATE OR REPLACE FUNCTION naksha_branch() RETURNS jsonb
STABLE
RETURN CASE WHEN nullif(current_setting(naksha_var('branch'), true), '')::jsonb->>'xid'
                 = current_setting('naksha.xid', true)
            THEN current_setting(naksha_var('branch'))::jsonb->'layers' END;

-- The overlay that this transaction writes to; 0 on main.
CREATE OR REPLACE FUNCTION naksha_top_overlay() RETURNS int4
STABLE
RETURN coalesce((naksha_branch()->0->>0)::int4, 0);

-- The public id of a collection; the tables of an overlay have another name.
CREATE OR REPLACE FUNCTION naksha_name(c naksha_collection) RETURNS text
STABLE
RETURN coalesce(c.base, c.id);

-- Advisory lock classes of this storage: (oid of its sequence, one of these numbers).
--   0 marks a backend whose single-key locks are txn locks of this storage
--   1 day rollover    2 publication    3 the sequencer sleeps    4 maintenance
--   5 the elected sequencer    6 optimal partitioning    7 folding of tile cells
--   16 + n is the write gate of collection n, -n that of overlay n
CREATE OR REPLACE FUNCTION naksha_lock_class() RETURNS int4
STABLE PARALLEL SAFE
RETURN 'naksha_tx_object_id_seq'::regclass::oid::int8::bit(32)::int4;

-- Description of a session or a prepared transaction: pid, application, state and age, last
-- statement.
CREATE OR REPLACE FUNCTION naksha_session(pid int, owner text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF pid IS NULL THEN
        RETURN (SELECT format('prepared transaction %L since %s', p.gid, p.prepared)
                  FROM pg_locks x JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
                 WHERE x.locktype = 'transactionid' AND x.virtualtransaction = naksha_session.owner
                 LIMIT 1);
    END IF;
    RETURN (SELECT format('backend %s (%s), %s since %s: %s', a.pid, a.application_name, a.state,
                          coalesce(a.xact_start, a.state_change), left(a.query, 200))
              FROM pg_stat_activity a WHERE a.pid = naksha_session.pid);
END $$;

-- The sessions that hold an advisory lock of this storage, in one text; null if there is none.
CREATE OR REPLACE FUNCTION naksha_lock_holders(key int4) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT string_agg(naksha_session(l.pid, l.virtualtransaction), '; ' ORDER BY l.pid)
      FROM pg_locks l
     WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND l.classid = 'naksha_tx_object_id_seq'::regclass::oid
       AND l.objid = key::bit(32)::int8::oid AND l.pid IS DISTINCT FROM pg_backend_pid();
END;

-- Takes an advisory lock of this storage until the end of the transaction. Later requests queue
-- behind a waiting one, so the wait ends after naksha.lock_timeout (30 seconds, or 10 for a lock
-- that excludes all others), or after lock_timeout if that is less; the error names the holders.
CREATE OR REPLACE FUNCTION naksha_wait_lock(key int4, shared bool, what text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    is_taken bool := CASE WHEN shared
        THEN pg_try_advisory_xact_lock_shared(naksha_lock_class(), key)
        ELSE pg_try_advisory_xact_lock(naksha_lock_class(), key) END;
BEGIN
    IF is_taken THEN
        RETURN;
    END IF;
    PERFORM naksha_wait_lock_for(key, shared, what, least(
        coalesce(nullif(current_setting('naksha.lock_timeout', true), ''),
                 CASE WHEN shared THEN '30s' ELSE '10s' END)::interval,
        nullif(current_setting('lock_timeout'), '0')::interval));
END $$;

CREATE OR REPLACE FUNCTION naksha_wait_lock_for(key int4, shared bool, what text, most interval)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = 0 AS $$
BEGIN
    PERFORM set_config('lock_timeout', (extract(epoch FROM most) * 1000)::int::text, true);
    IF shared THEN
        PERFORM pg_advisory_xact_lock_shared(naksha_lock_class(), key);
    ELSE
        PERFORM pg_advisory_xact_lock(naksha_lock_class(), key);
    END IF;
EXCEPTION WHEN lock_not_available THEN
    PERFORM naksha_raise('55P03', format('Waited longer than %s s for %s, held by %s',
        extract(epoch FROM most)::float8, what,
        coalesce(naksha_lock_holders(key), 'a session that has ended since')), '{}',
        'Retry the transaction, or end the session that holds the lock');
END $$;

-- Rolls the sequence forward to the day that begins with `first`; never backwards. The lock must be
-- released before the transaction ends, in any case: it belongs to the subtransaction of this
-- block, which is always rolled back. Sequences are not rolled back.
CREATE OR REPLACE FUNCTION naksha_tx_roll(first int8) RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    n int8;
BEGIN
    PERFORM pg_advisory_xact_lock(naksha_lock_class(), 1);
    IF (SELECT last_value FROM naksha_tx_object_id_seq) < first THEN
        n := setval('naksha_tx_object_id_seq', first, true);
    ELSE
        n := nextval('naksha_tx_object_id_seq');
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'N0010';
EXCEPTION WHEN SQLSTATE 'N0010' THEN
    RETURN n;
END $$;

-- Draws the number. The shared lock on the last number drawn before it tells the sequencer that a
-- greater number is open; see 090.
CREATE OR REPLACE FUNCTION naksha_tx_draw() RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    first int8 := naksha_txn(naksha_now(), 0);
    n     int8;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(naksha_lock_class(), 0);
    -- A query on the sequence would hold one more lock.
    PERFORM pg_advisory_xact_lock_shared(
        coalesce(pg_sequence_last_value('naksha_tx_object_id_seq'), 1));
    n := nextval('naksha_tx_object_id_seq');
    IF n < first THEN
        n := naksha_tx_roll(first);
    END IF;
    PERFORM set_config(naksha_var('txn'), current_setting('naksha.xid') || ':' || n, true);
    PERFORM naksha_tx_ensure_day(n);
    RETURN n;
END $$;

-- The number of the current transaction, drawn when first asked for.
CREATE OR REPLACE FUNCTION naksha_txn() RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    app_id text := naksha_app_id();
    known  text := current_setting(naksha_var('txn'), true);
BEGIN
    -- A value set for the session belongs to another transaction, and is not used.
    IF split_part(known, ':', 1) = current_setting('naksha.xid') THEN
        RETURN split_part(known, ':', 2)::int8;
    END IF;
    RETURN naksha_tx_draw();
END $$;

CREATE OR REPLACE FUNCTION naksha_tx_ensure_day(txn int8) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
BEGIN
    PERFORM naksha_mark_own();
    PERFORM naksha_ensure_day('naksha_tx', txn);
END $$;

-- Name of the log partition that a transaction is written to: a statement on the log as a whole
-- locks all its indices, and those of every partition that it reads. The tail (106) may be replaced
-- by day partitions at any moment, so it is locked first, and then checked to be still the right
-- one.
CREATE OR REPLACE FUNCTION naksha_log_partition(txn int8) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    part text;
BEGIN
    LOOP
        part := naksha_ensure_day('naksha_tx', txn);
        EXIT WHEN part NOT LIKE 'naksha\_tx\_from\_%';
        BEGIN
            EXECUTE format('LOCK TABLE %I IN ROW EXCLUSIVE MODE', part);
            EXIT WHEN part = naksha_partition_of('naksha_tx', txn);
        EXCEPTION WHEN undefined_table THEN
            CONTINUE;
        END;
    END LOOP;
    RETURN part;
END $$;

-- The number of this transaction once it has written to the log, null for one that changed nothing.
CREATE OR REPLACE FUNCTION naksha_logged_txn() RETURNS int8
STABLE
RETURN nullif(current_setting(naksha_var('logged'), true), '')::int8;

-- Box as polygon, also when it is a point or a line.
CREATE OR REPLACE FUNCTION naksha_box(area geometry) RETURNS geometry
IMMUTABLE PARALLEL SAFE
RETURN ST_MakeEnvelope(ST_XMin(area), ST_YMin(area), ST_XMax(area), ST_YMax(area), 4326);

-- Adds a row to the log; if (action, id) exists the first row is kept. No other transaction has the
-- same number, so no row can be added between the check and the insert.
CREATE OR REPLACE FUNCTION naksha_tx_log(
    log_action text, log_id text, created int8, updated int8, deleted int8, purged int8,
    area geometry, cells int8[] DEFAULT '{1}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    drawn int8 := naksha_txn();
BEGIN
    PERFORM naksha_mark_own();
    EXECUTE naksha_planned(
        'timestamptz, timestamptz, int8, text, text, text, text, int4, int8, int8, int8, int8, '
        'geometry, int8[]', format(
        'INSERT INTO %1$I (ts, seq_ts, txn, action, id, app_id, author, overlay, created, updated, '
        'deleted, purged, bbox, cells) '
        'SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 WHERE NOT EXISTS '
        '(SELECT FROM %1$I WHERE txn = $3 AND action = $4 AND id = $5)',
        naksha_log_partition(drawn)))
        || format('(%L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L)',
                  naksha_time_text(naksha_now()), nullif(current_setting('naksha.now', true), ''),
                  drawn, log_action, log_id, naksha_app_id(), naksha_author(),
                  naksha_top_overlay(), created, updated, deleted, purged, naksha_box(area),
                  cells);
    PERFORM set_config(naksha_var('logged'), drawn::text, true);
END $$;

-- Adds a signal to the log. A change of a collection itself counts for the whole world.
CREATE OR REPLACE FUNCTION naksha_tx_signal(signal_action text, signal_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_tx_log(signal_action, signal_id, 0, 0, 0, 0, NULL,
                          CASE signal_action WHEN 'MESSAGE' THEN '{}' ELSE '{1}' END::int8[]);
END $$;

CREATE OR REPLACE FUNCTION naksha_tx_message(
    message_id text, message text, attachment jsonb DEFAULT NULL,
    attachment_binary bytea DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
BEGIN
    PERFORM naksha_mark_own();
    PERFORM naksha_tx_signal('MESSAGE', message_id);
    EXECUTE format('UPDATE %I SET msg_text = $3, msg_json = $4, msg_binary = $5 '
                   'WHERE txn = $1 AND action = ''MESSAGE'' AND id = $2',
                   naksha_partition_of('naksha_tx', naksha_txn()))
      USING naksha_txn(), message_id, message, attachment, attachment_binary;
END $$;

-- The tile cells that the transaction has recorded for a collection so far, as text with commas:
-- the whole world, if an older version of naksha_tx_count has recorded none.
CREATE OR REPLACE FUNCTION naksha_tx_cells(collection_number int) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    cells text[] := string_to_array(
        current_setting(naksha_var('cells_' || collection_number), true), ':');
BEGIN
    RETURN CASE WHEN cells[1] = current_setting('naksha.xid') THEN cells[2] ELSE '1' END;
END $$;

-- The first counts of a collection are written with its log row. More of them accumulate in a
-- transaction-local setting, which a savepoint rolls back as well, and are written by the deferred
-- trigger below: at most one update per collection and transaction. Tile cells accumulate as text
-- in a setting of their own, and are merged only when it is long.
CREATE OR REPLACE FUNCTION naksha_tx_count(
    collection naksha_collection, created int8, updated int8, deleted int8, purged int8,
    area geometry, cells int8[] DEFAULT '{1}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name     text := naksha_var('changes_' || collection.number);
    known    text;
    sum      jsonb := nullif(current_setting(name, true), '')::jsonb;
    is_first bool := sum->>'xid' IS DISTINCT FROM current_setting('naksha.xid');
BEGIN
    IF cardinality(cells) > 500 THEN
        cells := naksha_merged_cells(cells);
    END IF;
    IF is_first THEN
        sum := NULL;
        PERFORM naksha_tx_log('MODIFY_FEATURES', naksha_name(collection), created, updated,
                              deleted, purged, area, cells);
    ELSE
        known := nullif(naksha_tx_cells(collection.number), '');
    END IF;
    known := concat_ws(',', known, nullif(array_to_string(cells, ','), ''));
    IF length(known) > 16384 THEN
        known := array_to_string(naksha_merged_cells(string_to_array(known, ',')::int8[]), ',');
    END IF;
    PERFORM set_config(naksha_var('cells_' || collection.number),
                       current_setting('naksha.xid') || ':' || known, true);
    area := ST_Envelope(ST_Collect(area, (sum->>'area')::geometry));
    PERFORM set_config(name, jsonb_build_object(
        'xid', current_setting('naksha.xid'),
        'logged', is_first,
        'created', created + coalesce((sum->>'created')::int8, 0),
        'updated', updated + coalesce((sum->>'updated')::int8, 0),
        'deleted', deleted + coalesce((sum->>'deleted')::int8, 0),
        'purged', purged + coalesce((sum->>'purged')::int8, 0),
        'area', area::text)::text, true);
    IF current_setting(naksha_var('flushed'), true) = current_setting('naksha.xid', true) THEN
        PERFORM naksha_tx_flush(naksha_name(collection), collection.number);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION naksha_tx_flush(collection_id text, collection_number int) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    name text := naksha_var('changes_' || collection_number);
    sum  jsonb := nullif(current_setting(name, true), '')::jsonb;
    area geometry;
    cells int8[];
BEGIN
    IF sum->>'xid' IS DISTINCT FROM current_setting('naksha.xid') OR (sum->'logged')::bool THEN
        RETURN;  -- The log row has all counts.
    END IF;
    PERFORM naksha_mark_own();
    area := sum->>'area';
    cells := naksha_merged_cells(string_to_array(naksha_tx_cells(collection_number), ',')::int8[]);
    EXECUTE naksha_planned('int8, text, int8, int8, int8, int8, geometry, int8[]', format(
        'UPDATE %I SET created = $3, updated = $4, deleted = $5, purged = $6, bbox = $7, '
        'cells = $8 '
        'WHERE txn = $1 AND action = ''MODIFY_FEATURES'' AND id = $2',
        naksha_partition_of('naksha_tx', naksha_txn())))
        || format('(%L, %L, %L, %L, %L, %L, %L, %L)', naksha_txn(), collection_id, sum->>'created',
                  sum->>'updated', sum->>'deleted', sum->>'purged',
                  naksha_box(area), cells);
END $$;

-- At the end of the transaction: writes more counts, and wakes the sequencer if it sleeps. If the
-- shared lock is granted the sequencer is awake, and checks once more before it sleeps. A
-- transaction that notifies cannot be prepared; one that will be prepared declares it, and leaves
-- the wake-up to others.
CREATE OR REPLACE FUNCTION naksha_tx_finish() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.action = 'MODIFY_FEATURES' THEN
        IF NEW.overlay = 0 THEN
            PERFORM naksha_tx_flush(NEW.id, c.number) FROM naksha_collection c WHERE c.id = NEW.id;
        ELSE
            PERFORM naksha_tx_flush(NEW.id, c.number) FROM naksha_collection c
              WHERE c.base = NEW.id AND c.overlay = NEW.overlay;
        END IF;
        PERFORM set_config(naksha_var('flushed'), current_setting('naksha.xid', true), true);
    END IF;
    IF NOT pg_try_advisory_xact_lock_shared(naksha_lock_class(), 3)
       AND current_setting('naksha.two_phase', true) IS DISTINCT FROM 'on' THEN
        PERFORM pg_notify('naksha_written', naksha_lock_class()::text);
    END IF;
    RETURN NULL;
END $$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger
                    WHERE tgrelid = 'naksha_tx'::regclass AND tgname = 'naksha_tx_finish') THEN
        CREATE CONSTRAINT TRIGGER naksha_tx_finish AFTER INSERT ON naksha_tx
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION naksha_tx_finish();
    END IF;
END $$;
