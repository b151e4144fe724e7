-- Checks that a read makes in its own snapshot; see naksha.psql.read.checked_statement.

-- The partitions of the histories of some collections or overlays.
CREATE OR REPLACE FUNCTION naksha_history_partitions(tables text[]) RETURNS oid[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN ARRAY(SELECT p.inhrelid FROM unnest(tables) AS t(id), pg_inherits p
                  WHERE p.inhparent = to_regclass(quote_ident(t.id || '_hst')) ORDER BY p.inhrelid);
END $$;

-- The same when a statement is planned. It is declared immutable so that the planner evaluates it:
-- the plan then contains the partitions that it knows. A new partition invalidates the plan.
CREATE OR REPLACE FUNCTION naksha_planned_partitions(tables text[]) RETURNS oid[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN naksha_history_partitions(tables);
END $$;

-- Why a statement cannot read the history of some tables, each since a transaction; empty if it
-- can. It was built for a published version, unless that is null, and for the tables of a
-- collection in some overlays, '' for an overlay without.
CREATE OR REPLACE FUNCTION naksha_read_obstacle(
    version int8, collection_id text, overlays int4[], overlay_tables text[], tables text[],
    since int8[], planned oid[]) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SET search_path FROM CURRENT AS $$
BEGIN
    IF version IS NOT NULL AND NOT EXISTS (SELECT FROM naksha_version v WHERE v.txn = version) THEN
        RETURN 'version';
    ELSIF overlays <> '{}' AND overlay_tables IS DISTINCT FROM ARRAY(
            SELECT CASE WHEN o.number IS NOT NULL THEN coalesce(h.id, '') END
              FROM unnest(overlays) WITH ORDINALITY AS l(number, n)
              LEFT JOIN naksha_overlay o ON o.number = l.number
              LEFT JOIN naksha_collection h ON h.base = collection_id AND h.overlay = l.number
             ORDER BY l.n) THEN
        RETURN 'overlays';
    ELSIF planned IS DISTINCT FROM naksha_history_partitions(tables) THEN
        -- Reading the size of a table that is not locked makes the session notice changes of its
        -- tables by others, so that its next statement is planned for them.
        PERFORM pg_relation_size('naksha_migration');
        RETURN 'partitions';
    ELSIF EXISTS (SELECT FROM unnest(tables, since) AS t(id, txn)
                   WHERE t.txn < naksha_floor(t.id)) THEN
        RETURN 'floor';
    END IF;
    RETURN '';
END $$;
