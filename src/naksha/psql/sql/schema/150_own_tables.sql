-- The storage's own tables are written by functions only; the error of a direct write names the
-- function.

-- Sets the identity of the storage once; later calls find it set.
CREATE OR REPLACE FUNCTION naksha_storage_name(storage_id text, number int8) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    INSERT INTO naksha_storage (id, number) VALUES (storage_id, number) ON CONFLICT DO NOTHING;
END;

-- The ids and numbers under which this storage wrote states of a collection, the present one last,
-- each with the first and last row number. A storage that was forked has several.
CREATE OR REPLACE FUNCTION naksha_storage_ids(collection_id text)
RETURNS TABLE (id text, number int8, first_i int8, last_i int8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT k.id, k.number, coalesce(max(k.last_i) OVER (
               ORDER BY k.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) + 1, 0), k.last_i
      FROM (SELECT f.value->>'id', (f.value->>'number')::int8,
                   coalesce((f.value->'lastI'->>collection_id)::int8, 0), f.place
              FROM naksha_storage s,
                   jsonb_array_elements(s.former) WITH ORDINALITY AS f(value, place)
            UNION ALL
            SELECT s.id, s.number, 9223372036854775807, 9223372036854775807 FROM naksha_storage s)
          AS k(id, number, last_i, place)
     ORDER BY k.place;
END $$;

-- The last row number that a collection has used. Sequences are not replicated, so the rows are
-- checked, too.
CREATE OR REPLACE FUNCTION naksha_last_i(c naksha_collection) RETURNS int8
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    found int8;
BEGIN
    EXECUTE format('SELECT max(i) FROM (SELECT max(i) AS i FROM %I UNION ALL '
                   'SELECT max(i) FROM %I UNION ALL SELECT max(i) FROM %I UNION ALL '
                   'SELECT pg_sequence_last_value(%L) UNION ALL '
                   'SELECT max(last_i) FROM naksha_former WHERE id = %L AND last_i > 0) AS m',
                   c.id, c.id || '_del', c.id || '_hst', naksha_numbers(c), c.id) INTO found;
    RETURN found;
END $$;

-- Gives a copy of a storage an id and a number of its own. Existing states keep their ids, and the
-- storage still accepts them. The storage must not be open anywhere else: the elected sequencer
-- holds lock 5, a writer holds lock 0.
CREATE OR REPLACE FUNCTION naksha_storage_fork(new_id text, new_number int8) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    s     naksha_storage;
    rows_ jsonb;
BEGIN
    PERFORM naksha_mark_own();
    IF NOT pg_try_advisory_xact_lock(naksha_lock_class(), 5)
       OR NOT pg_try_advisory_xact_lock(naksha_lock_class(), 0) THEN
        PERFORM naksha_raise('N0005', 'The storage is in use and cannot be forked',
            '{"field": "storage"}', 'Close it everywhere, and end transactions that write to it');
    END IF;
    SELECT * INTO s FROM naksha_storage FOR UPDATE;
    IF new_id !~ '^[a-z][a-z0-9_-]{0,31}$' THEN
        PERFORM naksha_raise('N0006', format('%L is not a valid storage id', new_id),
            '{"field": "id"}', 'It must match ^[a-z][a-z0-9_-]{0,31}$');
    END IF;
    IF new_id = s.id OR new_number = s.number OR EXISTS (
           SELECT FROM jsonb_array_elements(s.former) AS f(value)
            WHERE f.value->>'id' = new_id OR (f.value->>'number')::int8 = new_number) THEN
        PERFORM naksha_raise('N0005', format('The storage has, or had, the id %L or the number %s',
            new_id, new_number), '{"field": "id"}',
            'Give the fork an id and a number that the storage never had');
    END IF;
    SELECT coalesce(jsonb_object_agg(k.name, k.last_i), '{}') INTO rows_
      FROM (SELECT naksha_name(c), coalesce(max(naksha_last_i(c)), 0) FROM naksha_collection c
             GROUP BY 1) AS k(name, last_i);
    UPDATE naksha_storage SET id = new_id, number = new_number,
           former = s.former || jsonb_build_array(jsonb_build_object(
               'id', s.id, 'number', s.number, 'lastI', rows_,
               'txn', (SELECT last_value FROM naksha_tx_object_id_seq)::text,
               'version', (SELECT coalesce(max(v.seq_number), 0) FROM naksha_version v)));
END $$;

-- Sets how many days the log and its versions are kept.
CREATE OR REPLACE FUNCTION naksha_storage_keep_log(days int8) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    UPDATE naksha_storage SET tx_log_days = days;
END;

-- Pins what reading at a version needs, of one collection or (null) of all. The same name again
-- moves the pin. A guarding pin also forbids dropping the collections and switching their history
-- off.
CREATE OR REPLACE FUNCTION naksha_pin_set(
    pin_name text, pin_txn int8, collection_id text DEFAULT NULL, is_guard bool DEFAULT false)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
BEGIN
    PERFORM naksha_mark_own();
    INSERT INTO naksha_pin (name, collection, txn, guards)
    VALUES (pin_name, collection_id, pin_txn, is_guard)
    ON CONFLICT (name) DO UPDATE SET collection = excluded.collection, txn = excluded.txn,
                                     guards = excluded.guards;
END $$;

CREATE OR REPLACE FUNCTION naksha_pin_remove(pin_name text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    DELETE FROM naksha_pin WHERE name = pin_name;
END;

-- Raises the error for a kept object that does not have the expected revision.
CREATE OR REPLACE FUNCTION naksha_raise_kept(object_kind text, object_id text, expected int8)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    found int8 := (SELECT k.revision FROM naksha_kept k
                    WHERE k.kind = object_kind AND k.id = object_id);
BEGIN
    PERFORM naksha_raise('N0005', format('The %s %L is %s, not %s as expected', object_kind,
        object_id, coalesce('at revision ' || found, 'absent'),
        CASE expected WHEN 0 THEN 'absent' ELSE 'at revision ' || expected END),
        '{"field": "expected"}', 'Read it again and repeat the change');
END $$;

-- Stores an object and returns its revision. `expected` is the revision that must exist, 0 for none
-- at all, null for any.
CREATE OR REPLACE FUNCTION naksha_keep(
    object_kind text, object_id text, object jsonb, expected int8 DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    made int8;
BEGIN
    PERFORM naksha_mark_own();
    IF expected IS NULL THEN
        INSERT INTO naksha_kept AS k (kind, id, value, revision)
        VALUES (object_kind, object_id, object, 1)
        ON CONFLICT (kind, id) DO UPDATE SET value = excluded.value, revision = k.revision + 1
        RETURNING revision INTO made;
    ELSIF expected = 0 THEN
        INSERT INTO naksha_kept (kind, id, value, revision)
        VALUES (object_kind, object_id, object, 1)
        ON CONFLICT (kind, id) DO NOTHING RETURNING revision INTO made;
    ELSE
        UPDATE naksha_kept SET value = object, revision = revision + 1
         WHERE kind = object_kind AND id = object_id AND revision = expected
        RETURNING revision INTO made;
    END IF;
    IF made IS NULL THEN
        PERFORM naksha_raise_kept(object_kind, object_id, expected);
    END IF;
    RETURN made;
END $$;

CREATE OR REPLACE FUNCTION naksha_forget(
    object_kind text, object_id text, expected int8 DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    gone int8;
BEGIN
    PERFORM naksha_mark_own();
    DELETE FROM naksha_kept
     WHERE kind = object_kind AND id = object_id AND revision = coalesce(expected, revision)
    RETURNING revision INTO gone;
    IF gone IS NULL AND expected IS NOT NULL AND expected IS DISTINCT FROM coalesce((
           SELECT k.revision FROM naksha_kept k
            WHERE k.kind = object_kind AND k.id = object_id), 0) THEN
        PERFORM naksha_raise_kept(object_kind, object_id, expected);
    END IF;
END $$;

-- Stores a meta feature of the collection; the same id again replaces it. Naksha's own meta
-- features (ids that begin with "naksha:") belong to a version, and are not replaced by those of an
-- earlier one. The number follows from the id, so that concurrent writers collide on one row.
CREATE OR REPLACE FUNCTION naksha_meta_put(collection_id text, feature_id text, feature jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
BEGIN
    PERFORM naksha_mark_own();
    EXECUTE format('INSERT INTO %I AS old (i, jsondata) VALUES (hashtextextended($1, 0), $2) '
        'ON CONFLICT (i) DO UPDATE SET jsondata = excluded.jsondata '
        'WHERE CASE WHEN starts_with($1, ''naksha:'') '
        'THEN coalesce((old.jsondata->''properties''->>''txn'')::int8, 0) '
        '<= coalesce((excluded.jsondata->''properties''->>''txn'')::int8, 9223372036854775807) '
        'ELSE true END', collection_id || '_meta')
      USING feature_id, jsonb_set(feature, '{id}', to_jsonb(feature_id));
END $$;

-- Removes a meta feature of the collection; returns whether it existed.
CREATE OR REPLACE FUNCTION naksha_meta_delete(collection_id text, feature_id text) RETURNS bool
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    removed int8;
BEGIN
    PERFORM naksha_mark_own();
    EXECUTE format('DELETE FROM %I WHERE i = hashtextextended($1, 0)', collection_id || '_meta')
      USING feature_id;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed > 0;
END $$;

-- Records completed migration steps, and the fingerprint of the files that were run last.
CREATE OR REPLACE FUNCTION naksha_migration_done(steps text[], fingerprint text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    DELETE FROM naksha_migration WHERE name LIKE 'schema:%';
    INSERT INTO naksha_migration (name) SELECT unnest(steps || fingerprint) ON CONFLICT DO NOTHING;
END;

SELECT naksha_guard(t.name, 'INSERT OR UPDATE OR DELETE OR TRUNCATE', t.hint)
  FROM (VALUES
    ('naksha_storage', 'Use naksha_storage_keep_log(days) or naksha_storage_fork(id, number)'),
    ('naksha_collection', 'Use naksha_collection_create, naksha_collection_change, '
     'naksha_collection_drop or naksha_collection_restore'),
    ('naksha_former', 'Use naksha_collection_drop; maintenance removes what is dropped'),
    ('naksha_pin', 'Use naksha_pin_set(name, txn, collection, guards) or '
     'naksha_pin_remove(name)'),
    ('naksha_kept', 'Use naksha_keep(kind, id, value, expected) or naksha_forget(kind, id, '
     'expected)'),
    ('naksha_cell', 'Use naksha_fold_cells(), as the library does'),
    ('naksha_migration', 'Use naksha_migration_done(steps, fingerprint), as the library does')
  ) AS t(name, hint);
