-- Bulk load: many connections fill and index tables, invisibly, each in transactions of its own;
-- one transaction, the coordinator's, then puts them in the place of the empty leaves and writes
-- the log. All or nothing: an interrupted load leaves only tables that belong to no collection, and
-- those are swept.
--
-- The tables naksha_stage_n_p0 … _pf of job n become the leaves. They are filled from staged parts
-- (115), or from the only leaf of a collection that grows (122).

CREATE SEQUENCE IF NOT EXISTS naksha_stage_seq AS int4 MAXVALUE 1073741823 CYCLE;

-- The owner of a job holds this advisory lock of the storage for as long as its session lives.
CREATE OR REPLACE FUNCTION naksha_stage_key(job int) RETURNS int
IMMUTABLE PARALLEL SAFE
RETURN 1073741824 + job;

CREATE OR REPLACE FUNCTION naksha_stage_name(job int, kind text, leaf text) RETURNS text
IMMUTABLE PARALLEL SAFE
RETURN 'naksha_stage_' || job || '_' || kind || leaf;

-- A new job of this session. It takes the lock before it creates the first table.
CREATE OR REPLACE FUNCTION naksha_stage_open() RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    job int;
BEGIN
    LOOP
        job := nextval('naksha_stage_seq');
        IF pg_try_advisory_lock(naksha_lock_class(), naksha_stage_key(job)) THEN
            RETURN job;
        END IF;
    END LOOP;
END $$;

-- Refuses the job of another role, and one that no session holds. All connections of a load have
-- the same role; one of them holds the job. The functions that create and drop the tables of jobs
-- run as the owner (160), and the caller passes the names of the tables.
CREATE OR REPLACE FUNCTION naksha_check_job(job int, leaf text DEFAULT '0') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF leaf IS NULL OR leaf !~ '^[0-9a-f]$' THEN
        PERFORM naksha_raise('N0006', format('%L is not a leaf', leaf), '{"field": "leaf"}',
                             'A leaf is one of 0 to 9 and a to f');
    END IF;
    IF job < 1 OR NOT EXISTS (
           SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
            WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
              AND l.database = (SELECT d.oid FROM pg_database d
                                 WHERE d.datname = current_database())
              AND l.classid = 'naksha_tx_object_id_seq'::regclass::oid
              AND l.objid = naksha_stage_key(job)::oid AND a.usename = session_user) THEN
        PERFORM naksha_raise('N0008', format('No open session of role %I has begun load %s',
            session_user, job), '{"field": "job"}', 'Call naksha_stage_open first');
    END IF;
END $$;

-- A table that can become a leaf. The CHECK avoids the scan of ATTACH.
CREATE OR REPLACE FUNCTION naksha_stage_create_leaf(job int, leaf text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_check_job(job, leaf);
    EXECUTE format('CREATE TABLE %I (i int8 NOT NULL, geo geometry(GeometryZ, 4326), '
                   'jsondata jsonb NOT NULL, CONSTRAINT naksha_bounds CHECK '
                   '(substring(md5(jsondata->>''id''), 1, 1) IS NOT NULL '
                   'AND substring(md5(jsondata->>''id''), 1, 1) = %L)) WITH (fillfactor = 90)',
                   naksha_stage_name(job, 'p', leaf), leaf);
END $$;

-- The number of features of a table, their area and their tile cells.
CREATE OR REPLACE FUNCTION naksha_measure(
    tbl text, OUT features int8, OUT area geometry, OUT cells int8[])
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('SELECT count(*), ST_SetSRID(ST_Extent(geo), 4326), naksha_merged_cells('
                   'naksha_cover(array_agg(DISTINCT naksha_corners(box)) '
                   'FILTER (WHERE box IS NOT NULL))) '
                   'FROM (SELECT geo, geo::box3d AS box FROM %I OFFSET 0) AS t', tbl)
       INTO features, area, cells;
END $$;

-- ---- The coordinator ----------------------------------------------------------------------------

-- Refuses a collection whose leaves are published: a replica receives neither the tables that would
-- replace them nor any later change of them.
CREATE OR REPLACE FUNCTION naksha_check_unpublished(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF naksha_is_published(collection_id) THEN
        PERFORM naksha_raise('N0009', format('Collection %L is published for logical replication; '
            'a replica would not receive the tables of a bulk load', collection_id),
            jsonb_build_object('collection', collection_id),
            'Write the features in normal transactions, or load a new collection and publish it '
            'then');
    END IF;
END $$;

-- Refuses a collection that is not empty.
CREATE OR REPLACE FUNCTION naksha_bulk_check_empty(c naksha_collection) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    detail jsonb := jsonb_build_object('collection', c.id);
    found  bool;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', c.id) INTO found;
    IF found THEN
        PERFORM naksha_raise('N0005', 'The collection has features; a bulk load requires an empty '
                             'collection', detail, 'Write to it in a normal transaction');
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', c.id || '_del') INTO found;
    IF found THEN
        PERFORM naksha_raise('N0009', 'The collection has deleted features; purge them before a '
                             'bulk load', detail);
    END IF;
END $$;

-- Checks that the load can begin, and returns the settings of the collection: null if it is new.
CREATE OR REPLACE FUNCTION naksha_bulk_look(collection_id text) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c naksha_collection;
BEGIN
    PERFORM naksha_check_collection_id(collection_id);
    SELECT * INTO c FROM naksha_collection WHERE id = collection_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF c.dropped_at <> 0 THEN
        PERFORM naksha_raise('N0001', 'The collection exists already, but is dropped; restore it '
            'or choose another id', jsonb_build_object('collection', collection_id));
    END IF;
    PERFORM naksha_bulk_check_empty(c), naksha_check_unpublished(c.id);
    RETURN naksha_collection_info(c);
END $$;

-- Creates the collection (without leaves), or closes the gate of an existing one, and draws the
-- number; returns the common values of all rows: the first `i` and the shared parts of the
-- namespace. `known` are the settings that the client has checked its features against.
CREATE OR REPLACE FUNCTION naksha_bulk_begin(
    collection_id text, settings jsonb, known jsonb,
    OUT txn int8, OUT first_i int8, OUT mark text, OUT after_i text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.leaves = 'later' AS $$
DECLARE
    c      naksha_collection;
    now_ms int8 := naksha_epoch_ms(naksha_now());
    xyz    jsonb;
    estimates text[] := '{estimatedFeatureCount,byteSize,compressedSize}';
BEGIN
    IF known IS NULL THEN
        PERFORM naksha_collection_create(collection_id, settings);
        SELECT * INTO c FROM naksha_collection WHERE id = collection_id;
    ELSE
        c := naksha_open_alone(collection_id);
        -- Estimates may be refreshed at any time.
        IF naksha_bulk_look(collection_id) - estimates <> known - estimates THEN
            PERFORM naksha_raise('40001', format('Collection %L was changed during the load',
                collection_id), jsonb_build_object('collection', collection_id), 'Retry the load');
        END IF;
    END IF;
    txn := naksha_txn();
    first_i := nextval(format('%I', collection_id || '_i_seq'));
    xyz := naksha_make_xyz('CREATE', 1, coalesce(naksha_author(), c.author, naksha_app_id()),
        naksha_app_id(), NULL, NULL, NULL, txn, now_ms, now_ms, naksha_clock_ms(),
        naksha_clock_ms(), NULL, NULL, NULL) - '{uuid,tags,crid,qrid,mrid}'::text[];
    mark := '"@ns:com:here:xyz":' || left(xyz::text, -1) || ',"uuid":"'
        || naksha_guid_prefix(naksha_storage_id(), collection_id, txn);
    after_i := '",';
END $$;

-- Attaches the loaded table as the leaf: it replaces an existing empty one, with its name and all
-- its dependent objects. Part of naksha_bulk_finish, which has checked the arguments.
CREATE OR REPLACE FUNCTION naksha_bulk_attach(collection_id text, job int, leaf text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
DECLARE
    loaded text := naksha_stage_name(job, 'p', leaf);
    part   text := collection_id || '_p' || leaf;
    name   text;
    used   bool;
BEGIN
    PERFORM naksha_hold(loaded);
    IF to_regclass(format('%I.%I', current_schema(), part)) IS NOT NULL THEN
        PERFORM naksha_hold_own(part);
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', part);
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', part) INTO used;
        IF used THEN
            PERFORM naksha_raise('N0005', format('Leaf %s of collection %L has features', leaf,
                collection_id), jsonb_build_object('collection', collection_id),
                'Load into an empty leaf, or write the features with naksha_upsert');
        END IF;
        EXECUTE format('DROP TABLE %I', part);
    END IF;
    EXECUTE format('ALTER TABLE %I RENAME TO %I', loaded, part);
    FOR name IN SELECT k.relname FROM pg_index x JOIN pg_class k ON k.oid = x.indexrelid
                 WHERE x.indrelid = to_regclass(quote_ident(part)) ORDER BY 1 LOOP
        EXECUTE format('ALTER INDEX %I RENAME TO %I', name,
                       part || substr(name, length(loaded) + 1));
    END LOOP;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%L%s)', collection_id, part,
                   leaf, CASE leaf WHEN '0' THEN ', NULL' ELSE '' END);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT naksha_bounds', part);
    PERFORM naksha_create_leaf_triggers(part, collection_id);
END $$;

-- Completes a load: attaches the tables and writes the log. `last_i` is the highest number used.
CREATE OR REPLACE FUNCTION naksha_bulk_finish(
    collection_id text, job int, last_i int8, features int8, area geometry,
    cells int8[] DEFAULT '{1}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
DECLARE
    c    naksha_collection := naksha_open_alone(collection_id);
    leaf text;
BEGIN
    PERFORM naksha_check_job(job), naksha_hold_own(collection_id);
    PERFORM setval(s.name, greatest(last_i, pg_sequence_last_value(s.name), 1))
       FROM to_regclass(format('%I.%I', current_schema(), collection_id || '_i_seq')) AS s(name);
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', collection_id);
    -- The first table also replaces a single leaf, which holds all digits.
    FOR leaf IN SELECT to_hex(n) FROM generate_series(0, 15) n LOOP
        PERFORM naksha_bulk_attach(collection_id, job, leaf);
    END LOOP;
    PERFORM naksha_set_grown(collection_id),
            naksha_tx_count(c, features, 0, 0, 0, area, cells);
END $$;

-- Drops the tables of a job.
CREATE OR REPLACE FUNCTION naksha_stage_drop(job int) RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
DECLARE
    name    text;
    dropped int := 0;
BEGIN
    PERFORM naksha_check_job(job);
    FOR name IN SELECT k.relname FROM pg_class k
                 WHERE k.relnamespace = quote_ident(current_schema())::regnamespace
                   AND k.relkind = 'r'
                   AND k.relname ~ ('^naksha_stage_' || job || '_p[0-9a-f]$') LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I.%I', current_schema(), name);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- Drops the tables of loads whose owner has ended; returns their number. A backend may still be
-- working for a client that died; its tables are left to the next call.
CREATE OR REPLACE FUNCTION naksha_sweep_staging() RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    job     int;
    dropped int := 0;
BEGIN
    FOR job IN SELECT DISTINCT substring(k.relname, '^naksha_stage_(\d+)_p[0-9a-f]$')::int
                 FROM pg_class k
                WHERE k.relnamespace = quote_ident(current_schema())::regnamespace
                  AND k.relkind = 'r'
                  AND k.relname ~ '^naksha_stage_\d+_p[0-9a-f]$' LOOP
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(naksha_lock_class(), naksha_stage_key(job));
        BEGIN
            dropped := dropped + naksha_stage_drop(job);
        EXCEPTION WHEN lock_not_available THEN
            CONTINUE;
        END;
    END LOOP;
    RETURN dropped;
END $$;
