-- Triggers that stand aside for the storage's own statements only, table by table; see
-- naksha.psql.schema.online.
SELECT naksha_mend_triggers(tbl) FROM naksha_tables_to_mend() AS tbl;
