-- Names that older documents and clients use. Each is a thin wrapper of its replacement.

CREATE OR REPLACE FUNCTION naksha_uid() RETURNS int8
RETURN naksha_txn();

-- The same for a transaction that is about to write to a collection: it takes the write gate first,
-- so that it cannot overtake a session that changes the collection itself.
CREATE OR REPLACE FUNCTION naksha_uid(collection_id text) RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_open(collection_id);
    RETURN naksha_txn();
END $$;

-- Application and author one after the other, in any order; naksha_tx_start takes both at once.
-- An author that comes first waits, marked with the transaction's id, for the application.
CREATE OR REPLACE FUNCTION naksha_tx_set_app_id(app_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    xid     text := pg_current_xact_id()::text;
    waiting text := current_setting('naksha.author_first', true);
BEGIN
    IF current_setting('naksha.xid', true) = xid AND app_id <> '' THEN
        PERFORM set_config('naksha.app_id', app_id, true);
    ELSIF starts_with(waiting, xid || ' ') THEN
        PERFORM naksha_tx_start(app_id, substr(waiting, length(xid) + 2));
    ELSE
        PERFORM naksha_tx_start(app_id);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION naksha_tx_set_author(author text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    xid text := pg_current_xact_id()::text;
BEGIN
    IF current_setting('naksha.xid', true) = xid THEN
        PERFORM set_config('naksha.author', coalesce(author, ''), true);
    ELSE
        PERFORM set_config('naksha.author_first', xid || ' ' || coalesce(author, ''), true);
    END IF;
END $$;

-- Only tables of this storage's schema are collections; null stands for that schema.
CREATE OR REPLACE FUNCTION naksha_space_set_history(
    space_schema text, space_table text, enabled bool) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF space_schema <> current_schema() THEN
        PERFORM naksha_raise('N0002', format('Schema %I is not the schema of this storage, %I',
            space_schema, current_schema()), jsonb_build_object('collection', space_table));
    END IF;
    PERFORM naksha_collection_change(space_table, jsonb_build_object('historyEnabled', enabled));
END $$;

CREATE OR REPLACE FUNCTION naksha_space_enable_history(space_schema text, space_table text)
RETURNS void
RETURN naksha_space_set_history(space_schema, space_table, true);

CREATE OR REPLACE FUNCTION naksha_space_enable_history(space_table text) RETURNS void
RETURN naksha_space_set_history(NULL, space_table, true);

CREATE OR REPLACE FUNCTION naksha_space_disable_history(space_schema text, space_table text)
RETURNS void
RETURN naksha_space_set_history(space_schema, space_table, false);

CREATE OR REPLACE FUNCTION naksha_space_disable_history(space_table text) RETURNS void
RETURN naksha_space_set_history(NULL, space_table, false);

-- Statements that restore owner, grants and comment of a view after it is created again.
CREATE OR REPLACE FUNCTION naksha_view_rights(name text) RETURNS text[]
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT ARRAY[format('ALTER VIEW %s OWNER TO %I', name, pg_get_userbyid(v.relowner)),
                 format('COMMENT ON VIEW %s IS %L', name, obj_description(v.oid, 'pg_class'))]
           || coalesce(array_agg(format('GRANT %s ON %s TO %s%s', g.privilege_type, name,
                  CASE g.grantee WHEN 0 THEN 'PUBLIC'
                       ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
                  CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END))
              FILTER (WHERE g.grantee <> v.relowner), '{}')
      FROM pg_class v LEFT JOIN aclexplode(v.relacl) g ON true
     WHERE v.oid = to_regclass(name) GROUP BY v.oid, v.relowner;
END;

-- Creates or replaces views that depend on each other: the first one is the query, each other one
-- selects everything from the one before. PostgreSQL replaces a view only if its columns stay the
-- same; otherwise all of them are created again, with their rights. That fails if a user's view
-- depends on them, and the error names it.
CREATE OR REPLACE FUNCTION naksha_put_views(names text[], query text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    queries text[] := query || ARRAY(SELECT 'SELECT * FROM ' || n FROM unnest(names) n);
    rights  text[];
    step    text;
BEGIN
    FOR n IN 1..cardinality(names) LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %s AS %s', names[n], queries[n]);
    END LOOP;
EXCEPTION WHEN invalid_table_definition THEN
    FOR n IN REVERSE cardinality(names)..1 LOOP
        rights := rights || naksha_view_rights(names[n]);
        EXECUTE format('DROP VIEW IF EXISTS %s', names[n]);
    END LOOP;
    FOR n IN 1..cardinality(names) LOOP
        EXECUTE format('CREATE VIEW %s AS %s', names[n], queries[n]);
    END LOOP;
    FOREACH step IN ARRAY rights LOOP
        EXECUTE step;
    END LOOP;
END $$;

-- The storage schema that xyz_config belongs to, null if there is none.
CREATE OR REPLACE FUNCTION naksha_legacy_owner() RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT substring(obj_description(c.oid, 'pg_class') FROM '^Naksha storage in (.*)$')
              FROM pg_class c WHERE c.oid = to_regclass('xyz_config.transactions'));
END $$;

-- The log in the layout of the table xyz_config.transactions: one row per table and per message. A
-- transaction that only changed a collection is included, so that `id` has no holes. Replacing a
-- view locks its readers out, so that is done only if the text has changed.
DO $do$
DECLARE
    query text := $view$
SELECT t.i, t.psql_id AS txid, t.txn % 100000000000 AS txi, t.ts AS txts, s.number AS txdb,
       naksha_tx_uuid(t.txn, s.number) AS txn,
       CASE t.action WHEN 'MESSAGE' THEN 'COMMIT_MSG'
            ELSE (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE c.oid = 'naksha_tx'::regclass)::text END COLLATE "C" AS schema,
       t.id AS "table", t.msg_text COLLATE "C" AS commit_msg, t.msg_json AS commit_json,
       CASE WHEN t.seq_number IS NOT NULL AND t.action <> 'MESSAGE' THEN t.id END AS space,
       t.seq_number AS id, CASE WHEN t.seq_number IS NOT NULL THEN t.seq_ts END AS ts
  FROM naksha_tx t CROSS JOIN LATERAL (
           SELECT coalesce((SELECT (f.value->>'number')::int8
                              FROM jsonb_array_elements(k.former) WITH ORDINALITY AS f(value, place)
                             WHERE t.txn <= (f.value->>'txn')::int8 ORDER BY f.place LIMIT 1),
                           k.number) AS number
             FROM naksha_storage k) AS s
 WHERE t.action <> 'MODIFY_COLLECTION'
    OR NOT EXISTS (SELECT FROM naksha_tx f WHERE f.txn = t.txn AND f.id = t.id
                      AND f.action = 'MODIFY_FEATURES')
$view$;
    name  text := format('%I.naksha_legacy_transactions', current_schema());
BEGIN
    IF obj_description(to_regclass(name), 'pg_class') IS DISTINCT FROM md5(query) THEN
        PERFORM naksha_put_views(name || CASE WHEN naksha_legacy_owner() = current_schema()
            THEN ARRAY['xyz_config.transactions'] ELSE '{}' END, query);
        EXECUTE format('COMMENT ON VIEW %s IS %L', name, md5(query));
    END IF;
END $do$;

-- Creates the schema xyz_config for older clients. A database has only one, so one storage gets it,
-- and only on request; another one takes it over with `take_over`.
CREATE OR REPLACE FUNCTION naksha_install_legacy(take_over bool DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
DECLARE
    home    text := current_schema();
    owner   text := naksha_legacy_owner();
    wrapper record;
BEGIN
    IF owner <> home AND NOT take_over
       OR owner IS NULL AND to_regclass('xyz_config.transactions') IS NOT NULL THEN
        PERFORM naksha_raise('N0007', 'The schema xyz_config belongs to '
            || coalesce('the storage in ' || owner, 'XYZ-Hub'), '{"field": "xyz_config"}',
            CASE WHEN owner IS NULL THEN 'Move its table transactions away first'
                 ELSE 'Call naksha_install_legacy(take_over => true)' END);
    END IF;
    CREATE SCHEMA IF NOT EXISTS xyz_config;
    PERFORM naksha_put_views(ARRAY['xyz_config.transactions'],
                             format('SELECT * FROM %I.naksha_legacy_transactions', home));
    EXECUTE format('COMMENT ON VIEW xyz_config.transactions IS %L', 'Naksha storage in ' || home);
    FOR wrapper IN
        SELECT * FROM (VALUES
            ('naksha_uid', '', '', 'int8'),
            ('naksha_uid', 'collection text', 'collection', 'int8'),
            ('naksha_txn', '', '', 'int8'),
            ('naksha_tx_set_app_id', 'app_id text', 'app_id', 'void'),
            ('naksha_tx_set_author', 'author text', 'author', 'void'),
            ('naksha_space_enable_history', '_schema text, _table text', '_schema, _table', 'void'),
            ('naksha_space_enable_history', '_table text', '_table', 'void'),
            ('naksha_space_disable_history', '_schema text, _table text', '_schema, _table',
             'void'),
            ('naksha_space_disable_history', '_table text', '_table', 'void')
        ) AS w(name, parameters, arguments, result)
    LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION xyz_config.%I(%s) RETURNS %s RETURN %I.%I(%s)',
            wrapper.name, wrapper.parameters, wrapper.result, home, wrapper.name,
            wrapper.arguments);
    END LOOP;
END $$;

-- Removes everything that naksha_install_legacy created, and the schema if nothing else is in it.
CREATE OR REPLACE FUNCTION naksha_uninstall_legacy() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    signature regprocedure;
BEGIN
    IF naksha_legacy_owner() IS DISTINCT FROM current_schema()::text THEN
        RETURN;
    END IF;
    DROP VIEW xyz_config.transactions;
    FOR signature IN SELECT p.oid::regprocedure FROM pg_proc p
                 WHERE p.pronamespace = to_regnamespace('xyz_config')
                   AND p.proname LIKE 'naksha\_%'
    LOOP
        EXECUTE format('DROP FUNCTION %s', signature);
    END LOOP;
    IF NOT EXISTS (SELECT FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass
                      AND refobjid = to_regnamespace('xyz_config')) THEN
        DROP SCHEMA xyz_config;
    END IF;
END $$;
