-- Missing or outdated triggers. ATTACH PARTITION clones the row triggers of a collection, not its
-- statement triggers: a leaf attached by hand lacks history and log for statements that name the
-- leaf itself, until maintenance has installed them (naksha_attach_leaf does so at once). Triggers
-- made before decision 0092 also ignore the statements of users' triggers, and are replaced.

-- The condition of outdated triggers, as PostgreSQL prints it.
CREATE OR REPLACE FUNCTION naksha_outdated_when() RETURNS text
IMMUTABLE
RETURN 'current_setting(''naksha.managed''::text, true) IS DISTINCT FROM ''on''::text';

-- Outdated triggers of one table, or of all tables of the storage, as the statement that made them.
CREATE OR REPLACE FUNCTION naksha_outdated_triggers(
    of_table text DEFAULT NULL, OUT tbl text, OUT definition text) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT d.tbl, d.definition
      FROM (SELECT k.relname AS tbl, pg_get_triggerdef(t.oid) AS definition
              FROM pg_trigger t JOIN pg_class k ON k.oid = t.tgrelid
             WHERE k.relnamespace = quote_ident(current_schema())::regnamespace
               AND (of_table IS NULL OR t.tgrelid = to_regclass(quote_ident(of_table)))
               AND t.tgparentid = 0 AND t.tgname LIKE 'naksha\_%') AS d
     WHERE position(naksha_outdated_when() IN d.definition) > 0;
END;

-- Leaves that lack a statement trigger, with their collections.
CREATE OR REPLACE FUNCTION naksha_leaves_without_triggers(OUT tbl text, OUT collection_id text)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT k.relname, c.id
      FROM naksha_collection c JOIN pg_inherits i ON i.inhparent = to_regclass(quote_ident(c.id))
      JOIN pg_class k ON k.oid = i.inhrelid
     WHERE c.overlay = 0 AND (
           SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = k.oid
              AND t.tgname = ANY(ARRAY['naksha_after_insert', 'naksha_after_update',
                                       'naksha_after_delete', 'naksha_guard'])) < 4;
END;

-- Tables that naksha_mend_triggers is to be called for.
CREATE OR REPLACE FUNCTION naksha_tables_to_mend() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT o.tbl FROM naksha_outdated_triggers() o
    UNION
    SELECT l.tbl FROM naksha_leaves_without_triggers() l
     ORDER BY 1;
END;

-- Installs missing triggers of a table, and replaces outdated ones. Writers of the table wait for
-- the end of the transaction, so each table has one of its own.
CREATE OR REPLACE FUNCTION naksha_mend_triggers(of_table text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    definition text;
BEGIN
    PERFORM naksha_create_leaf_triggers(l.tbl, l.collection_id)
       FROM naksha_leaves_without_triggers() l WHERE l.tbl = of_table;
    FOR definition IN SELECT o.definition FROM naksha_outdated_triggers(of_table) o LOOP
        EXECUTE overlay(replace(definition, naksha_outdated_when(), naksha_trigger_when())
                        PLACING 'CREATE OR REPLACE TRIGGER' FROM 1 FOR length('CREATE TRIGGER'));
    END LOOP;
END $$;
