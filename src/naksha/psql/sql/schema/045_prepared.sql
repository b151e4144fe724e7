-- Statements that contain names of tables are built as text, and so parsed and planned at each run;
-- for one feature that takes longer than the write itself. Here the session keeps their plans, as
-- prepared statements, which survive a rollback.

-- Prepares a statement. The parser locks its tables until the end of the transaction, so this runs
-- in a subtransaction that is always rolled back: the locks are released, the statement remains.
-- When there are `most` statements with this prefix, all of them are deallocated first.
CREATE OR REPLACE FUNCTION naksha_prepare(
    prefix text, most int, name text, types text, statement text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    known text[];
    old   text;
BEGIN
    known := ARRAY(SELECT p.name FROM pg_prepared_statements p WHERE starts_with(p.name, prefix));
    IF cardinality(known) >= most THEN
        FOREACH old IN ARRAY known LOOP
            EXECUTE format('DEALLOCATE %I', old);
        END LOOP;
    END IF;
    EXECUTE format('PREPARE %I (%s) AS %s', name, types, statement);
    RAISE EXCEPTION USING ERRCODE = 'N0010';
EXCEPTION WHEN SQLSTATE 'N0010' THEN
    RETURN;
END $$;

-- Returns the command that runs a statement with its kept plan; the caller appends the arguments,
-- as literals. Another user of the connection may have deallocated the statement, and any commit of
-- another session (ANALYZE, ALTER TABLE) may have invalidated its plan. So EXPLAIN checks both each
-- time, and plans again if needed. The planner locks every index of every table it considers, of
-- which the plan needs few: so this, too, runs in a subtransaction that is rolled back
-- (docs/decisions/0095). Callers set enable_seqscan = off and plan_cache_mode = force_generic_plan:
-- the plan is made once, for empty and full tables alike, and without knowing the values.
CREATE OR REPLACE FUNCTION naksha_kept_plan(prefix text, most int, types text, statement text)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    -- Two storages may have collections of the same name.
    wanted text := prefix || md5(current_setting('search_path') || statement);
    plan   text := 'EXPLAIN (COSTS OFF) EXECUTE ' || wanted || '(NULL'
                   || repeat(', NULL', length(types) - length(replace(types, ',', ''))) || ')';
BEGIN
    FOR attempt IN 1..2 LOOP
        BEGIN
            EXECUTE plan;
            RAISE EXCEPTION USING ERRCODE = 'N0010';
        EXCEPTION
            WHEN SQLSTATE 'N0010' THEN
                EXIT;
            WHEN invalid_sql_statement_name THEN
                PERFORM naksha_prepare(prefix, most, wanted, types, statement);
        END;
    END LOOP;
    RETURN 'EXECUTE ' || wanted;
END $$;

-- The same for statements that write a leaf, whose plans take about a megabyte each.
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
