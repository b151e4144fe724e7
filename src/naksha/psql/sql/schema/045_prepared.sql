-- Statements that name their tables are put together as text, and then parsed and planned whenever
-- they run; for one feature that takes longer than to write it. Here the session keeps their plans,
-- as prepared statements, which outlive a rollback.

-- The command that runs a statement with the plan that is kept for it; its arguments are to follow,
-- as literals. Such a plan has about a megabyte, so when there are too many all are forgotten. The
-- view is asked each time, because others who use the connection may have forgotten them, too.
CREATE OR REPLACE FUNCTION naksha_prepared(types text, statement text) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    -- Two storages may have collections of the same name.
    wanted text := 'naksha_plan_' || md5(current_setting('search_path') || statement);
    known  text[];
    name   text;
BEGIN
    SELECT array_agg(p.name) INTO known
      FROM pg_prepared_statements p WHERE starts_with(p.name, 'naksha_plan_');
    IF wanted = ANY(known) THEN
        RETURN 'EXECUTE ' || wanted;
    END IF;
    IF cardinality(known) >= 32 THEN
        FOREACH name IN ARRAY known LOOP
            EXECUTE format('DEALLOCATE %I', name);
        END LOOP;
    END IF;
    EXECUTE format('PREPARE %I (%s) AS %s', wanted, types, statement);
    RETURN 'EXECUTE ' || wanted;
END $$;
