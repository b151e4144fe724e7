-- The storage's own tables are written by functions only; who tries it directly is told which.

-- The storage says who it is once; the next one finds it said.
CREATE OR REPLACE FUNCTION naksha_storage_name(storage_id text, number int8) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
BEGIN ATOMIC
    INSERT INTO naksha_storage (id, number) VALUES (storage_id, number) ON CONFLICT DO NOTHING;
END;

-- How many days the log and its versions are kept.
CREATE OR REPLACE FUNCTION naksha_storage_keep_log(days int8) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
BEGIN ATOMIC
    UPDATE naksha_storage SET tx_log_days = days;
END;

-- Keeps what reading at a version needs, of one collection or (null) of all. The same name again
-- moves the pin.
CREATE OR REPLACE FUNCTION naksha_pin_set(
    pin_name text, pin_txn int8, collection_id text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on' AS $$
BEGIN
    INSERT INTO naksha_pin (name, collection, txn) VALUES (pin_name, collection_id, pin_txn)
    ON CONFLICT (name) DO UPDATE SET collection = excluded.collection, txn = excluded.txn;
END $$;

CREATE OR REPLACE FUNCTION naksha_pin_remove(pin_name text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
BEGIN ATOMIC
    DELETE FROM naksha_pin WHERE name = pin_name;
END;

-- Stores a feature beside the collection; the same id again replaces it, unless what is there is
-- of a later version. The number follows from the id, so that two writers meet in one row.
CREATE OR REPLACE FUNCTION naksha_meta_put(collection_id text, feature_id text, feature jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on' AS $$
BEGIN
    EXECUTE format('INSERT INTO %I AS old (i, jsondata) VALUES (hashtextextended($1, 0), $2) '
        'ON CONFLICT (i) DO UPDATE SET jsondata = excluded.jsondata '
        'WHERE coalesce((old.jsondata->''properties''->>''txn'')::int8, 0) '
        '<= (excluded.jsondata->''properties''->>''txn'')::int8', collection_id || '_meta')
      USING feature_id, feature;
END $$;

-- The steps that are done, and the fingerprint of the files that were run last.
CREATE OR REPLACE FUNCTION naksha_migration_done(steps text[], fingerprint text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
BEGIN ATOMIC
    DELETE FROM naksha_migration WHERE name LIKE 'schema:%';
    INSERT INTO naksha_migration (name) SELECT unnest(steps || fingerprint) ON CONFLICT DO NOTHING;
END;

SELECT naksha_guard(t.name, 'INSERT OR UPDATE OR DELETE OR TRUNCATE', t.hint)
  FROM (VALUES
    ('naksha_storage', 'Use naksha_storage_keep_log(days); the rest never changes'),
    ('naksha_collection', 'Use naksha_collection_create, naksha_collection_change, '
     'naksha_collection_drop or naksha_collection_restore'),
    ('naksha_former', 'Use naksha_collection_drop; maintenance removes what is dropped'),
    ('naksha_pin', 'Use naksha_pin_set(name, txn, collection) or naksha_pin_remove(name)'),
    ('naksha_migration', 'Use naksha_migration_done(steps, fingerprint), as the library does')
  ) AS t(name, hint);
