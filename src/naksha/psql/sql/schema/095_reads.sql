-- Returns the partitions of some histories at the time that a statement is planned; see
-- naksha.psql.read.checked_statement. It is declared immutable so that the planner evaluates it:
-- the plan then contains the partitions that it was made for. The plan depends on the histories,
-- too, so a new partition invalidates it.
CREATE OR REPLACE FUNCTION naksha_planned_partitions(histories regclass[]) RETURNS oid[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN ARRAY(SELECT p.inhrelid FROM pg_inherits p
                  WHERE p.inhparent = ANY(histories::oid[]) ORDER BY p.inhrelid);
END $$;

-- Whether the index on the geometries of a collection's or overlay's HEAD contains spans, too
-- (naksha_create_geo_index). Declared immutable for the same reason; it only chooses between
-- conditions that select the same rows.
CREATE OR REPLACE FUNCTION naksha_has_spans(collection_id text) RETURNS bool
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN EXISTS (SELECT FROM naksha_collection c
                    WHERE c.id = collection_id AND NOT c.points_only);
END $$;
