-- Collections: create, change, drop, restore; their tables and their public info.

CREATE OR REPLACE FUNCTION naksha_collection_info(c naksha_collection) RETURNS jsonb
STABLE
RETURN jsonb_build_object(
    'id', c.id, 'number', c.number, 'maxAge', c.max_age, 'historyEnabled', c.off_since IS NULL,
    'idPrefix', c.id_prefix, 'author', c.author, 'optimalPartitioning', c.optimal_partitioning,
    'pointsOnly', c.points_only, 'deleteAt', c.delete_at, 'droppedAt', c.dropped_at,
    'estimatedFeatureCount', c.estimated_feature_count, 'byteSize', c.byte_size,
    'compressedSize', c.compressed_size, 'partitions', c.partitions);

CREATE OR REPLACE FUNCTION naksha_check_collection_id(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF collection_id IS NULL OR collection_id !~ '^[a-z][a-z0-9_:-]{0,31}$'
       OR collection_id ~ '(_hst(_.*)?|_del|_meta|_i_seq|_p[0-9a-f])$|^(naksha|sqlite)_' THEN
        PERFORM naksha_raise('N0006', format('%L is not a valid collection id', collection_id),
            jsonb_build_object('field', 'id', 'collection', collection_id),
            'It must be a lower-case letter and up to 31 of a-z 0-9 _ : -, and no reserved name');
    END IF;
END $$;

-- Refuses an id whose table would shadow another one, or whose row type would shadow a type of
-- PostGIS; or that PostgreSQL's own catalog would shadow.
CREATE OR REPLACE FUNCTION naksha_check_free_name(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF to_regclass(quote_ident(collection_id)) IS NOT NULL
       OR EXISTS (SELECT FROM pg_type t WHERE t.typname = collection_id
                     AND t.typnamespace <> 'pg_catalog'::regnamespace
                     AND pg_type_is_visible(t.oid)) THEN
        PERFORM naksha_raise('N0006', format('The collection id %L is already used as a name in '
            'the database', collection_id),
            jsonb_build_object('field', 'id', 'collection', collection_id),
            'Choose another collection id');
    END IF;
END $$;

-- The collection on main for writing: waits for the gate (shared), then reads it. A session that
-- changes the collection itself, or that has failed too often, holds the gate exclusively. A writer
-- that has read the collection before passes its `txn` as `resolved`, and is refused if it has been
-- changed, dropped or created again since.
CREATE OR REPLACE FUNCTION naksha_open_main(collection_id text, resolved int8 DEFAULT NULL)
RETURNS naksha_collection
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c naksha_collection;
BEGIN
    SELECT * INTO c FROM naksha_collection WHERE id = collection_id AND overlay = 0;
    IF FOUND THEN
        PERFORM naksha_wait_lock(16 + c.number, true,
                                 format('the write gate of collection %L', collection_id));
        SELECT * INTO c FROM naksha_collection WHERE id = collection_id AND dropped_at = 0;
    END IF;
    IF resolved IS NOT NULL AND resolved IS DISTINCT FROM c.txn THEN
        PERFORM naksha_raise('40001', format('The collection %L was changed since it was read',
            collection_id), jsonb_build_object('collection', collection_id),
            'Retry the transaction');
    ELSIF c.txn IS NULL THEN
        PERFORM naksha_raise('N0002', format('The collection %L does not exist', collection_id),
                             jsonb_build_object('collection', collection_id));
    END IF;
    RETURN c;
END $$;

-- The sequence that numbers the states of a collection and of its overlays, as a quoted name.
CREATE OR REPLACE FUNCTION naksha_numbers(c naksha_collection) RETURNS text
STABLE
RETURN format('%I', naksha_name(c) || '_i_seq');

-- The collection for writing, on the branch that the transaction works on (065) or on main.
CREATE OR REPLACE FUNCTION naksha_open(collection_id text, resolved int8 DEFAULT NULL)
RETURNS naksha_collection
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN CASE WHEN naksha_top_overlay() = 0 THEN naksha_open_main(collection_id, resolved)
                ELSE naksha_open_overlay(naksha_open_main(collection_id, resolved)) END;
END $$;

-- Refuses an operation on a branch that is possible on main only.
CREATE OR REPLACE FUNCTION naksha_check_on_main(what text, collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF naksha_top_overlay() <> 0 THEN
        PERFORM naksha_raise('N0009', what || ' on main only, but this transaction is on a branch',
                             jsonb_build_object('collection', collection_id));
    END IF;
END $$;

-- Closes the write gate for all other sessions until the end of the transaction.
CREATE OR REPLACE FUNCTION naksha_close_gate(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    top int4 := naksha_top_overlay();
BEGIN
    PERFORM naksha_wait_lock(16 + number, false,
                             format('the write gate of collection %L', collection_id))
       FROM naksha_collection
      WHERE CASE top WHEN 0 THEN id = collection_id
                     ELSE base = collection_id AND overlay = top END;
END $$;

-- Fails if a state, tombstone or collection change of a later transaction exists.
CREATE OR REPLACE FUNCTION naksha_check_order(latest int8, collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF latest > naksha_txn() THEN
        PERFORM naksha_raise('40001', format('A later transaction changed collection %L first',
            collection_id), jsonb_build_object('collection', collection_id),
            'Retry the transaction');
    END IF;
END $$;

-- Deletion table and history, the same for a collection and its overlays.
CREATE OR REPLACE FUNCTION naksha_create_side_tables(name text, points_only bool) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    columns text := 'i int8 NOT NULL, geo geometry(GeometryZ, 4326), jsondata jsonb NOT NULL';
BEGIN
    PERFORM naksha_mark_own();
    EXECUTE format('CREATE TABLE %I (%s)', name || '_del', columns);
    PERFORM naksha_create_first_indices(name || '_del', 'del', points_only);
    PERFORM naksha_guard(name || '_del', 'INSERT OR UPDATE OR DELETE OR TRUNCATE');
    EXECUTE format('CREATE TABLE %I (%s) PARTITION BY RANGE '
                   '(((jsondata->''properties''->''@ns:com:here:xyz''->>''txn_next'')::int8))',
                   name || '_hst', columns);
    -- It has no key, so logical replication must send whole rows of its partitions.
    EXECUTE format('ALTER TABLE %I REPLICA IDENTITY FULL', name || '_hst');
    PERFORM naksha_guard(name || '_hst', 'INSERT OR UPDATE OR DELETE OR TRUNCATE');
END $$;

-- Leaves of HEAD, the same for a collection and its overlays. A single leaf is light: it has its
-- first indices only.
CREATE OR REPLACE FUNCTION naksha_create_leaves(name text, points_only bool, partitions int)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    leaf text;
BEGIN
    FOR leaf IN SELECT to_hex(n) FROM generate_series(0, partitions - 1) n LOOP
        -- A missing id is routed to the first leaf, whose trigger refuses it by name.
        -- Room for the next state of a feature on its own page: neighbours stay neighbours.
        EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES IN (%L%s) '
            'WITH (fillfactor = 90)', name || '_p' || leaf, name, leaf,
            CASE WHEN partitions = 1 THEN ', ''1'', ''2'', ''3'', ''4'', ''5'', ''6'', ''7'', '
                     '''8'', ''9'', ''a'', ''b'', ''c'', ''d'', ''e'', ''f'', NULL'
                 WHEN leaf = '0' THEN ', NULL' ELSE '' END);
        PERFORM naksha_create_first_indices(name || '_p' || leaf, 'head', points_only);
        IF partitions > 1 THEN
            PERFORM naksha_create_other_indices(name || '_p' || leaf, 'head', points_only);
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION naksha_create_tables(
    collection_id text, collection_number int, points_only bool, partitions int) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    columns text := 'i int8 NOT NULL, geo geometry(GeometryZ, 4326), jsondata jsonb NOT NULL';
BEGIN
    PERFORM naksha_mark_own();
    PERFORM naksha_check_collection_id(collection_id), naksha_check_free_name(collection_id);
    EXECUTE format('CREATE TABLE %I (%s) PARTITION BY LIST '
                   '((substring(md5(jsondata->>''id''), 1, 1)))', collection_id, columns);
    -- A bulk load (110) brings its own leaves, filled and indexed.
    IF current_setting('naksha.leaves', true) IS DISTINCT FROM 'later' THEN
        PERFORM naksha_create_leaves(collection_id, points_only, partitions);
    END IF;
    EXECUTE format('CREATE SEQUENCE %I AS int8 MAXVALUE 1099511627775 OWNED BY %I.i',
                   collection_id || '_i_seq', collection_id);
    PERFORM setval(quote_ident(collection_id || '_i_seq'), f.last_i)
       FROM naksha_former f WHERE f.id = collection_id AND f.last_i > 0;
    PERFORM naksha_create_side_tables(collection_id, points_only);
    EXECUTE format('CREATE TABLE %I (%s, PRIMARY KEY (i))', collection_id || '_meta', columns);
    PERFORM naksha_guard(collection_id || '_meta', 'INSERT OR UPDATE OR DELETE OR TRUNCATE',
                         'Use naksha_meta_put(collection, id, feature) or naksha_meta_delete');
    PERFORM naksha_create_triggers(collection_id);
END $$;

-- Writes the public copy of the info; COMMENT takes no parameters.
CREATE OR REPLACE FUNCTION naksha_write_comment(collection_id text) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    info jsonb;
BEGIN
    PERFORM naksha_hold_own(collection_id);
    SELECT naksha_collection_info(c) INTO info FROM naksha_collection c WHERE id = collection_id;
    EXECUTE format('COMMENT ON TABLE %I IS %L', collection_id, info::text);
    RETURN info;
END $$;

-- The settings under the names of the info object; older documents use `history` or
-- `disableHistory`. A name that is not among `known` would have no effect, so it is refused.
CREATE OR REPLACE FUNCTION naksha_collection_settings(
    collection_id text, given jsonb, known text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    aliases  text[] := '{history,disableHistory}';
    settings jsonb := (given - aliases) || jsonb_build_object('historyEnabled', coalesce(
        (given->>'historyEnabled')::bool, (given->>'history')::bool,
        NOT (given->>'disableHistory')::bool));
    unknown  text := (SELECT min(name) FROM jsonb_object_keys(settings) AS name
                       WHERE name <> ALL(known));
BEGIN
    IF unknown IS NOT NULL THEN
        PERFORM naksha_raise('N0006', format('%L is not a setting of a collection that can be '
            'set here', unknown),
            jsonb_build_object('collection', collection_id, 'field', unknown),
            'Accepted settings are ' || array_to_string(known, ', '));
    END IF;
    IF settings->>'partitions' NOT IN ('1', '16') THEN
        PERFORM naksha_raise('N0006', format('partitions must be 1 or 16, not %s',
            settings->>'partitions'),
            jsonb_build_object('collection', collection_id, 'field', 'partitions'));
    END IF;
    IF (settings->>'deleteAt')::int8 < 0 THEN
        PERFORM naksha_raise('N0006', format('deleteAt must be 0 (never) or a time in ms after '
            '1970, not %s', settings->>'deleteAt'),
            jsonb_build_object('collection', collection_id, 'field', 'deleteAt'));
    END IF;
    RETURN settings;
END $$;

CREATE OR REPLACE FUNCTION naksha_collection_create(collection_id text, settings jsonb DEFAULT '{}')
RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    new_txn int8 := naksha_txn();
    made    naksha_collection;
BEGIN
    PERFORM naksha_mark_own();
    PERFORM naksha_check_collection_id(collection_id),
            naksha_check_on_main('Collections are created', collection_id);
    -- An info object that a client has read is accepted; its other members are ignored.
    settings := naksha_collection_settings(collection_id, settings,
        ARRAY(SELECT jsonb_object_keys(naksha_collection_info(NULL::naksha_collection))));
    INSERT INTO naksha_collection (id, txn, created_txn, floor_txn, off_since, max_age, id_prefix,
                                   author, optimal_partitioning, points_only, delete_at,
                                   partitions)
    -- A reused name has no history before its new creation.
    VALUES (collection_id, new_txn, new_txn,
            CASE WHEN EXISTS (SELECT FROM naksha_former f WHERE f.id = collection_id)
                 THEN new_txn ELSE 0 END,
            CASE WHEN (settings->>'historyEnabled')::bool IS FALSE THEN new_txn END,
            coalesce((settings->>'maxAge')::int8, 36500), nullif(settings->>'idPrefix', ''),
            settings->>'author', coalesce((settings->>'optimalPartitioning')::bool, false),
            coalesce((settings->>'pointsOnly')::bool, false),
            coalesce((settings->>'deleteAt')::int8, 0),
            coalesce((settings->>'partitions')::int, 1))
    ON CONFLICT (id) DO NOTHING
    RETURNING * INTO made;
    IF made.id IS NULL THEN
        PERFORM naksha_raise('N0001', format('The collection %L already exists', collection_id),
                             jsonb_build_object('collection', collection_id));
    END IF;
    PERFORM pg_advisory_xact_lock(naksha_lock_class(), 16 + made.number);
    PERFORM naksha_create_tables(collection_id, made.number, made.points_only,
                                 made.partitions);
    PERFORM naksha_tx_signal('MODIFY_COLLECTION', collection_id);
    RETURN naksha_write_comment(collection_id);
END $$;

-- Closes the gate, reads the collection for a change of itself, then draws the number.
CREATE OR REPLACE FUNCTION naksha_open_alone(collection_id text) RETURNS naksha_collection
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c naksha_collection;
BEGIN
    PERFORM naksha_check_on_main('Collections are changed', collection_id),
            naksha_close_gate(collection_id);
    SELECT * INTO c FROM naksha_collection WHERE id = collection_id AND overlay = 0 FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM naksha_raise('N0002', format('The collection %L does not exist', collection_id),
                             jsonb_build_object('collection', collection_id));
    END IF;
    PERFORM naksha_check_order(
        greatest(c.txn, naksha_logged_after(c, naksha_txn(), false)), c.id);
    RETURN c;
END $$;

-- The last transaction that wrote features of a collection on main, 0 if the log has none.
CREATE OR REPLACE FUNCTION naksha_last_write(collection_id text, since int8 DEFAULT 0) RETURNS int8
STABLE
RETURN (SELECT coalesce(max(t.txn), 0) FROM naksha_tx t
         WHERE t.id = collection_id AND t.action = 'MODIFY_FEATURES' AND t.overlay = 0
           AND t.txn > since);

-- The last transaction after `since` that wrote features of a collection, or purged some; 0 if none
-- did. Only the days in which later numbers were drawn are read, so that no plan contains the whole
-- log, whose partitions and indices would all be locked: mostly none, because the own number is the
-- last.
CREATE OR REPLACE FUNCTION naksha_logged_after(c naksha_collection, since int8, purges bool)
RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    drawn int8 := pg_sequence_last_value('naksha_tx_object_id_seq');
    part  text;
    parts text[] := ARRAY[naksha_partition_of('naksha_tx', since)];
    last  int8 := 0;
    found int8;
BEGIN
    IF drawn <= since THEN
        RETURN 0;
    ELSIF parts[1] IS DISTINCT FROM naksha_partition_of('naksha_tx', drawn) THEN
        parts := ARRAY(SELECT p.name FROM naksha_partitions('naksha_tx') p
                        WHERE p.lo <= drawn AND p.hi > since);
    END IF;
    FOREACH part IN ARRAY parts LOOP
        EXECUTE naksha_planned('text, int4, int8, bool', format(
            'SELECT max(txn) FROM %I WHERE id = $1 AND action = ''MODIFY_FEATURES'' '
            'AND overlay = $2 AND txn > $3 AND (purged > 0 OR NOT $4)', part))
            || format('(%L, %L, %L, %L)', naksha_name(c), c.overlay, since, purges) INTO found;
        last := greatest(last, found);
    END LOOP;
    RETURN last;
END $$;

-- The last transaction after `since` that purged features. A purge leaves no tombstone that the
-- order of a later creation could be checked against, so a creation checks this instead.
CREATE OR REPLACE FUNCTION naksha_last_purge(c naksha_collection, since int8) RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN naksha_logged_after(c, since, true);
END $$;

-- Refuses to remove what a guarding pin needs. No session can set a pin between this check and the
-- end of the transaction.
CREATE OR REPLACE FUNCTION naksha_check_unguarded(c naksha_collection) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    pin text;
BEGIN
    LOCK TABLE naksha_pin IN SHARE MODE;
    SELECT p.name INTO pin FROM naksha_pin p
     WHERE p.guards AND (p.collection = c.id OR (p.collection IS NULL AND c.created_txn <= p.txn))
     ORDER BY p.name LIMIT 1;
    IF FOUND THEN
        PERFORM naksha_raise('N0007', format('The collection %L is protected by pin %L', c.id, pin),
                             jsonb_build_object('collection', c.id, 'pin', pin),
                             'Remove the pin first, with naksha_pin_remove');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION naksha_collection_change(collection_id text, change jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c   naksha_collection := naksha_open_alone(collection_id);
    on_ bool;
BEGIN
    PERFORM naksha_mark_own();
    change := naksha_collection_settings(collection_id, change,
        '{maxAge,historyEnabled,idPrefix,author,optimalPartitioning,deleteAt,partitions}');
    on_ := coalesce((change->>'historyEnabled')::bool, c.off_since IS NULL);
    IF c.dropped_at <> 0 THEN
        PERFORM naksha_raise('N0002', format('The collection %L is dropped', collection_id),
            jsonb_build_object('collection', collection_id), 'Restore it before you change it');
    END IF;
    IF (c.off_since IS NULL AND NOT on_) OR (change->>'deleteAt')::int8 <> 0 THEN
        PERFORM naksha_check_unguarded(c);
    END IF;
    PERFORM naksha_change_partitions(c, (change->>'partitions')::int);
    UPDATE naksha_collection SET
        txn = naksha_txn(),
        max_age = coalesce((change->>'maxAge')::int8, max_age),
        id_prefix = CASE WHEN change ? 'idPrefix' THEN nullif(change->>'idPrefix', '')
                         ELSE id_prefix END,
        author = CASE WHEN change ? 'author' THEN change->>'author' ELSE author END,
        optimal_partitioning =
            coalesce((change->>'optimalPartitioning')::bool, optimal_partitioning),
        delete_at = coalesce((change->>'deleteAt')::int8, delete_at),
        -- The state written while history was off is the oldest one that can be read again.
        floor_txn = CASE WHEN on_ AND off_since IS NOT NULL
            THEN greatest(floor_txn, naksha_last_write(id, off_since - 1)) ELSE floor_txn END,
        off_since = CASE WHEN on_ THEN NULL ELSE coalesce(off_since, naksha_txn()) END
    WHERE id = collection_id;
    UPDATE naksha_collection SET max_age = coalesce((change->>'maxAge')::int8, max_age)
     WHERE base = collection_id;
    PERFORM naksha_tx_signal('MODIFY_COLLECTION', collection_id);
    RETURN naksha_write_comment(collection_id);
END $$;

CREATE OR REPLACE FUNCTION naksha_collection_enable_history(collection_id text) RETURNS jsonb
LANGUAGE sql SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT naksha_collection_change(collection_id, '{"historyEnabled": true}');
END;

CREATE OR REPLACE FUNCTION naksha_collection_disable_history(collection_id text) RETURNS jsonb
LANGUAGE sql SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT naksha_collection_change(collection_id, '{"historyEnabled": false}');
END;

-- Hides a collection from readers and writers; maintenance removes it after `at_ms`.
CREATE OR REPLACE FUNCTION naksha_collection_drop(collection_id text, at_ms int8 DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c naksha_collection := naksha_open_alone(collection_id);
BEGIN
    PERFORM naksha_mark_own();
    IF c.dropped_at <> 0 THEN
        PERFORM naksha_raise('N0002', format('The collection %L is already dropped', collection_id),
                             jsonb_build_object('collection', collection_id));
    END IF;
    PERFORM naksha_check_unguarded(c);
    UPDATE naksha_collection
       SET txn = naksha_txn(), dropped_at = greatest(naksha_epoch_ms(naksha_now()), 1),
           delete_at = greatest(coalesce(at_ms, naksha_epoch_ms(naksha_now())), 1)
     WHERE id = collection_id;
    PERFORM naksha_tx_signal('MODIFY_COLLECTION', collection_id);
    RETURN naksha_write_comment(collection_id);
END $$;

CREATE OR REPLACE FUNCTION naksha_collection_restore(collection_id text) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c naksha_collection := naksha_open_alone(collection_id);
BEGIN
    PERFORM naksha_mark_own();
    UPDATE naksha_collection SET txn = naksha_txn(), dropped_at = 0, delete_at = 0
     WHERE id = collection_id;
    PERFORM naksha_tx_signal('MODIFY_COLLECTION', collection_id);
    RETURN naksha_write_comment(collection_id);
END $$;

-- Removes a collection for good: its tables and rows, and those of its overlays. The number and the
-- state ids are never reused.
CREATE OR REPLACE FUNCTION naksha_collection_destroy(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
SET client_min_messages = 'warning' AS $$
DECLARE
    -- A collection of a user may have such a name, but not with the name of an overlay's tables.
    last_table text := CASE WHEN collection_id LIKE 'naksha\_o%' THEN '_ids' ELSE '_meta' END;
BEGIN
    PERFORM naksha_mark_own();
    PERFORM naksha_collection_destroy(h.id) FROM naksha_collection h WHERE h.base = collection_id;
    PERFORM naksha_close_gate(collection_id);
    INSERT INTO naksha_former AS f (id, number, last_i)
    SELECT c.id, c.number, coalesce(pg_sequence_last_value(
               to_regclass(quote_ident(c.id || '_i_seq'))), 0)
      FROM naksha_collection c WHERE c.id = collection_id AND c.overlay = 0
    ON CONFLICT (id) DO UPDATE SET number = excluded.number,
                                   last_i = greatest(f.last_i, excluded.last_i);
    EXECUTE format('DROP TABLE IF EXISTS %I, %I, %I, %I', collection_id, collection_id || '_del',
                   collection_id || '_hst', collection_id || last_table);
    DELETE FROM naksha_collection WHERE id = collection_id;
END $$;
