-- Statements that name their tables are put together as text, and then parsed and planned whenever
-- they run; for one feature that takes longer than to write it. Here the session keeps their plans,
-- as prepared statements, which outlive a rollback.

-- Prepare a statement. The parser locks its tables until the end of the transaction, so it is done
-- in a subtransaction that is always rolled back: the locks go with it, the statement stays. When
-- there are `most` statements of this prefix all of them are forgotten.
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

-- The command that runs a statement with the plan that is kept for it; its arguments are to follow,
-- as literals. Another user of the connection may have forgotten the statement, and any commit of
-- another session (ANALYZE, ALTER TABLE) may have made its plan invalid, so both are checked each
-- time, by EXPLAIN, which plans again what is not valid. The planner locks every index of every
-- table it looks at, the plan needs few of them: this, too, is done in a subtransaction that is
-- rolled back (docs/decisions/0095). Callers set enable_seqscan = off and plan_cache_mode =
-- force_generic_plan: the plan is made once for an empty table as for a full one, and without
-- knowing the values.
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
