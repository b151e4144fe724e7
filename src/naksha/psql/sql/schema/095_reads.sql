-- The partitions of some histories when a statement is planned; see
-- naksha.psql.read.checked_statement. It is declared immutable so that the planner evaluates it: the
-- plan then contains the partitions that it was made for. It depends on the histories, too, so a new
-- partition invalidates it.
CREATE OR REPLACE FUNCTION naksha_planned_partitions(histories regclass[]) RETURNS oid[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN ARRAY(SELECT p.inhrelid FROM pg_inherits p
                  WHERE p.inhparent = ANY(histories::oid[]) ORDER BY p.inhrelid);
END $$;
