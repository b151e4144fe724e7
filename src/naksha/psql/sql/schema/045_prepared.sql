-- Statements that name their tables are put together as text, and then parsed and planned whenever
-- they run; for one feature that takes longer than to write it. Here the session keeps their plans,
-- as prepared statements, which outlive a rollback.

-- Prepare a statement and make its plan. The planner locks every index of every table it looks at
-- until the end of the transaction; the plan itself needs few of them. So it is made in a
-- subtransaction that is always rolled back: the locks go with it, the prepared statement stays.
CREATE OR REPLACE FUNCTION naksha_prepare(name text, types text, statement text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    EXECUTE format('PREPARE %I (%s) AS %s', name, types, statement);
    EXECUTE format('EXPLAIN EXECUTE %I (%s)', name,
                   array_to_string(array_fill('NULL'::text, ARRAY[
                       cardinality(string_to_array(types, ','))]), ', '));
    RAISE EXCEPTION USING ERRCODE = 'N0010';
EXCEPTION WHEN SQLSTATE 'N0010' THEN
    RETURN;
END $$;

-- The command that runs a statement with the plan that is kept for it; its arguments are to follow,
-- as literals. When there are `most` plans of this prefix all of them are forgotten. The view is
-- asked each time, because others who use the connection may have forgotten them, too. Callers set
-- enable_seqscan = off and plan_cache_mode = force_generic_plan: the plan is made once for an empty
-- table as for a full one, and without knowing the values.
CREATE OR REPLACE FUNCTION naksha_kept_plan(prefix text, most int, types text, statement text)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    -- Two storages may have collections of the same name.
    wanted text := prefix || md5(current_setting('search_path') || statement);
    known  text[];
    name   text;
BEGIN
    SELECT array_agg(p.name) INTO known
      FROM pg_prepared_statements p WHERE starts_with(p.name, prefix);
    IF wanted = ANY(known) THEN
        RETURN 'EXECUTE ' || wanted;
    END IF;
    IF cardinality(known) >= most THEN
        FOREACH name IN ARRAY known LOOP
            EXECUTE format('DEALLOCATE %I', name);
        END LOOP;
    END IF;
    PERFORM naksha_prepare(wanted, types, statement);
    RETURN 'EXECUTE ' || wanted;
END $$;

-- The same for the statements that write a leaf, whose plans have about a megabyte each.
CREATE OR REPLACE FUNCTION naksha_prepared(types text, statement text) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN naksha_kept_plan('naksha_plan_', 32, types, statement);
END $$;

-- The same for the small statements around them.
CREATE OR REPLACE FUNCTION naksha_planned(types text, statement text) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN naksha_kept_plan('naksha_step_', 64, types, statement);
END $$;
