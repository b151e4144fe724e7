-- Growth: HEAD of a collection gets sixteen leaves in place of its only one. Sixteen tables are
-- filled and indexed beside it (like those of a bulk load, 110) and attached within a moment. It is
-- not a version: states, their numbers and the history are unchanged.
--
-- The rows of the new leaves are newer than the snapshots of running transactions, to which the
-- collection would seem empty. So naksha.psql.maintenance.growth fills them in a separate
-- transaction while another one holds the write gate, and waits for older transactions before the
-- swap. naksha_grow does everything in one transaction, for plain SQL.

-- Whether HEAD of a collection is published to a logical replica, which does not follow by itself.
CREATE OR REPLACE FUNCTION naksha_is_published(collection_id text) RETURNS bool
STABLE
RETURN EXISTS (SELECT FROM pg_publication_tables t
                WHERE t.schemaname = current_schema() AND t.tablename = collection_id || '_p0');

-- Collections that are large enough to grow, and may.
CREATE OR REPLACE FUNCTION naksha_collections_to_grow(rows_min int8) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    found text;
BEGIN
    FOR found IN SELECT c.id FROM naksha_collection c
                  WHERE c.partitions = 1 AND c.overlay = 0 AND c.dropped_at = 0
                    AND naksha_about_rows(to_regclass(quote_ident(c.id || '_p0'))) >= rows_min
                  ORDER BY c.id LOOP
        IF NOT naksha_is_published(found) THEN
            RETURN NEXT found;
        END IF;
    END LOOP;
END $$;

-- Objects that need the only leaf, which growth drops; null if there are none. Some rare ones are
-- reported by DROP TABLE only.
CREATE OR REPLACE FUNCTION naksha_grow_blockers(leaf regclass) RETURNS text
STABLE
RETURN (SELECT string_agg(DISTINCT coalesce(
                   pg_describe_object('pg_class'::regclass, r.ev_class, 0),
                   pg_describe_object(d.classid, d.objid, 0)), ', ')
          FROM pg_depend d
          LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
         WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = leaf AND d.deptype = 'n'
           AND r.ev_class IS DISTINCT FROM leaf);

-- Raises an error that names them, before anybody waits.
CREATE OR REPLACE FUNCTION naksha_check_growable(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    leaf     text := collection_id || '_p0';
    blockers text := (SELECT naksha_grow_blockers(to_regclass(quote_ident(leaf)))
                        FROM naksha_collection
                       WHERE id = collection_id AND overlay = 0 AND partitions = 1);
BEGIN
    IF blockers IS NOT NULL THEN
        PERFORM naksha_raise('N0007', format('Collection %L cannot grow: %s needs its table %I, '
            'which sixteen others replace', collection_id, blockers, leaf),
            jsonb_build_object('collection', collection_id),
            format('Drop it, or create it on %I instead', collection_id));
    END IF;
END $$;

-- Blocks all writers until the end of the transaction: those of the library by the gate, plain SQL
-- by a lock on the tables, which readers do not notice. Plain SQL has already locked the tables
-- when it reaches the gate; so the wait for them is short, and on a timeout the caller starts over
-- with neither.
CREATE OR REPLACE FUNCTION naksha_grow_begin(collection_id text) RETURNS naksha_collection
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
DECLARE
    c naksha_collection;
BEGIN
    PERFORM naksha_check_on_main('Collections grow', collection_id),
            naksha_check_growable(collection_id),
            naksha_close_gate(collection_id);
    SELECT * INTO c FROM naksha_collection WHERE id = collection_id AND overlay = 0;
    IF NOT FOUND THEN
        PERFORM naksha_raise('N0002', format('The collection %L does not exist', collection_id),
                             jsonb_build_object('collection', collection_id));
    END IF;
    IF c.partitions = 1 THEN
        PERFORM set_config('lock_timeout', '100ms', true);
        EXECUTE format('LOCK TABLE %I IN SHARE MODE', c.id);
    END IF;
    RETURN c;
END $$;

-- Fills the tables of a job from the only leaf, in one pass; user-made indices of the collection
-- are copied.
CREATE OR REPLACE FUNCTION naksha_grow_fill(collection_id text, job int) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
DECLARE
    whole text := naksha_stage_name(job, 'whole', '');
    leaf  text;
BEGIN
    PERFORM naksha_check_job(job), naksha_hold_own(collection_id);
    EXECUTE format('CREATE TABLE %I (LIKE %I) PARTITION BY LIST '
                   '((substring(md5(jsondata->>''id''), 1, 1)))', whole, collection_id);
    FOR leaf IN SELECT to_hex(n) FROM generate_series(0, 15) n LOOP
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING INDEXES, CONSTRAINT naksha_bounds CHECK '
            '(substring(md5(jsondata->>''id''), 1, 1) IS NOT NULL '
            'AND substring(md5(jsondata->>''id''), 1, 1) = %L)) WITH (fillfactor = 90)',
            naksha_stage_name(job, 'p', leaf), collection_id, leaf);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%L)', whole,
                       naksha_stage_name(job, 'p', leaf), leaf);
    END LOOP;
    EXECUTE format('INSERT INTO %I SELECT * FROM %I', whole, collection_id || '_p0');
    FOR leaf IN SELECT to_hex(n) FROM generate_series(0, 15) n LOOP
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', whole,
                       naksha_stage_name(job, 'p', leaf));
    END LOOP;
    EXECUTE format('DROP TABLE %I', whole);
END $$;

-- The sessions that wait for the write gate or HEAD of a collection, by virtual transaction id, and
-- whether they have read HEAD before: then this session and they would wait for each other.
CREATE OR REPLACE FUNCTION naksha_grow_waiting(collection_id text)
RETURNS TABLE (id text, has_read bool)
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT w.virtualtransaction, EXISTS (
               SELECT FROM pg_locks h WHERE h.virtualtransaction = w.virtualtransaction
                  AND h.granted AND h.relation IN (t.whole, t.leaf))
      FROM naksha_collection c,
           LATERAL (SELECT to_regclass(quote_ident(c.id)), to_regclass(quote_ident(c.id || '_p0')))
               AS t(whole, leaf),
           pg_locks w
     WHERE c.id = collection_id AND NOT w.granted
       AND (w.relation IN (t.whole, t.leaf)
            OR (w.locktype = 'advisory' AND w.classid = naksha_lock_class()::oid
                AND w.objid = (16 + c.number)::oid));
END;

-- Raises an error if a transaction that has read the collection waits for this one, before the
-- server detects a deadlock and aborts it.
CREATE OR REPLACE FUNCTION naksha_grow_give_way(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM naksha_grow_waiting(collection_id) w WHERE w.has_read) THEN
        PERFORM naksha_raise('40P01', format('Collection %L cannot grow now: a transaction that '
            'has read it waits to write to it', collection_id),
            jsonb_build_object('collection', collection_id),
            'Retry when the other transaction has ended');
    END IF;
END $$;

-- Running transactions (of `among`, if given) that may have a snapshot from before now. Those that
-- wait for this one are writers at READ COMMITTED: a statement takes its snapshot after its locks.
CREATE OR REPLACE FUNCTION naksha_grow_older(collection_id text, among text[] DEFAULT NULL)
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_stat_clear_snapshot(), naksha_grow_give_way(collection_id);
    RETURN ARRAY(SELECT r.id FROM unnest(naksha_running(among)) AS r(id)
                  WHERE r.id NOT IN (SELECT w.id FROM naksha_grow_waiting(collection_id) w));
END $$;

-- The swap. Readers wait for it; if a reader holds its lock for longer than the timeout, the swap
-- fails, and the caller retries. The timeout is less than deadlock_timeout (1 s). The new leaves
-- join the publications of the old one; a replica stops until it has them (docs/replication.md). A
-- publication of some rows or columns depends on the old leaf, and so blocks growth.
CREATE OR REPLACE FUNCTION naksha_grow_swap(collection_id text, job int) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning'
SET lock_timeout = '500ms' AS $$
DECLARE
    publications text[] := ARRAY(
        SELECT p.pubname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
         WHERE r.prrelid = to_regclass(quote_ident(collection_id || '_p0')));
    publication  text;
BEGIN
    PERFORM naksha_check_job(job), naksha_hold_own(collection_id),
            naksha_grow_give_way(collection_id);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', collection_id);
    EXECUTE format('DROP TABLE %I', collection_id || '_p0');
    PERFORM naksha_bulk_attach(collection_id, job, to_hex(n)) FROM generate_series(0, 15) n;
    FOREACH publication IN ARRAY publications LOOP
        EXECUTE format('ALTER PUBLICATION %I ADD TABLE %s', publication,
            (SELECT string_agg(format('%I', collection_id || '_p' || to_hex(n)), ', ')
               FROM generate_series(0, 15) n));
    END LOOP;
    PERFORM naksha_set_grown(collection_id);
END $$;

-- Records that the collection has sixteen leaves.
CREATE OR REPLACE FUNCTION naksha_set_grown(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
BEGIN
    PERFORM naksha_mark_own();
    UPDATE naksha_collection SET partitions = 16 WHERE id = collection_id;
    PERFORM naksha_write_comment(collection_id);
END $$;

-- Retries the swap for about ten seconds; the filled tables are kept meanwhile.
CREATE OR REPLACE FUNCTION naksha_grow_patiently(collection_id text, job int) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    FOR attempt IN 1..20 LOOP
        BEGIN
            PERFORM naksha_grow_swap(collection_id, job);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            IF attempt = 20 THEN
                RAISE;
            END IF;
        END;
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;

-- Grows a collection in the current transaction; returns whether it had to grow. Transactions that
-- began before must end first, which is waited for a few seconds. A transaction that begins between
-- now and the commit, with an isolation level above READ COMMITTED, must not read the collection
-- for the first time after the commit: as after ALTER TABLE, it would find nothing.
CREATE OR REPLACE FUNCTION naksha_grow(collection_id text) RETURNS bool
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c        naksha_collection := naksha_grow_begin(collection_id);
    job      int;
    is_used  bool;
    older    text[];
    deadline timestamptz;
BEGIN
    IF c.partitions = 16 THEN
        RETURN false;
    END IF;
    job := naksha_stage_open();
    PERFORM naksha_grow_fill(c.id, job);
    PERFORM naksha_staged_index(job, to_hex(n), c.points_only) FROM generate_series(0, 15) n;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', c.id) INTO is_used;
    deadline := clock_timestamp() + interval '5 seconds';
    WHILE is_used LOOP
        older := naksha_grow_older(c.id, older);
        EXIT WHEN older = '{}';
        IF clock_timestamp() > deadline THEN
            PERFORM naksha_raise('55P03', format('Collection %L cannot grow while %s older '
                'transactions are open, which would find it empty', c.id, cardinality(older)),
                jsonb_build_object('collection', c.id), 'Retry when they have ended');
        END IF;
        PERFORM pg_sleep(0.05);
    END LOOP;
    PERFORM naksha_grow_patiently(c.id, job);
    PERFORM pg_advisory_unlock(naksha_lock_class(), naksha_stage_key(job));
    RETURN true;
END $$;

-- Changes the number of leaves to the given one, if it is not null.
CREATE OR REPLACE FUNCTION naksha_change_partitions(c naksha_collection, wanted int) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF wanted < c.partitions THEN
        PERFORM naksha_raise('N0009', format('Collection %L has %s partitions; their number cannot '
            'be reduced', c.id, c.partitions),
            jsonb_build_object('collection', c.id, 'field', 'partitions'));
    ELSIF wanted > c.partitions THEN
        PERFORM naksha_grow(c.id);
    END IF;
END $$;
