-- Roles that do not own the storage: readers, and writers.

-- Functions that create tables run with the rights of the owner, so that every table belongs to the
-- owner and the default privileges below apply to it. Their search_path is fixed, and they check
-- their arguments: a writer must not reach tables of others, or data of the storage, through them.
-- Only writers may call them, and roles that were granted the writers' rights by hand.
DO $$
DECLARE
    f    regprocedure;
    role text;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
              WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
                AND p.proname IN ('naksha_make_day', 'naksha_prepare_log',
                    'naksha_create_tables', 'naksha_create_overlay_tables', 'naksha_write_comment',
                    'naksha_stage_create_leaf', 'naksha_stage_drop', 'naksha_bulk_finish',
                    'naksha_staged_open', 'naksha_staged_close', 'naksha_staged_index',
                    'naksha_sweep_staged') LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', f);
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
        FOR role IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC'
                                          ELSE quote_ident(pg_get_userbyid(a.grantee)) END
                      FROM pg_class k, aclexplode(k.relacl) a
                     WHERE k.oid = 'naksha_tx'::regclass AND a.privilege_type = 'INSERT' LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f, role);
        END LOOP;
    END LOOP;
    -- These formerly ran as the owner.
    GRANT EXECUTE ON FUNCTION naksha_ensure_day, naksha_create_side_tables, naksha_bulk_attach
       TO PUBLIC;
END $$;

-- The owner of the storage.
CREATE OR REPLACE FUNCTION naksha_owner() RETURNS name
STABLE
RETURN (SELECT pg_get_userbyid(c.relowner) FROM pg_class c
         WHERE c.oid = 'naksha_storage'::regclass);

-- Revokes all rights of a role on the storage.
CREATE OR REPLACE FUNCTION naksha_revoke(role text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('
        REVOKE ALL ON ALL TABLES IN SCHEMA %1$I FROM %2$I;
        REVOKE ALL ON ALL SEQUENCES IN SCHEMA %1$I FROM %2$I;
        REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %1$I FROM %2$I;
        ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA %1$I REVOKE ALL ON TABLES FROM %2$I;
        ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA %1$I REVOKE ALL ON SEQUENCES FROM %2$I;
        ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA %1$I REVOKE ALL ON FUNCTIONS FROM %2$I;
        REVOKE ALL ON SCHEMA %1$I FROM %2$I', current_schema(), role, naksha_owner());
END $$;

-- Functions that run as the owner find PostGIS in its schema. A role that creates functions there
-- can make them call its own functions.
CREATE OR REPLACE FUNCTION naksha_check_writer(role text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    postgis regnamespace := (SELECT e.extnamespace FROM pg_extension e
                              WHERE e.extname = 'postgis');
BEGIN
    IF has_schema_privilege(role, postgis::oid, 'CREATE')
       AND NOT pg_has_role(role, naksha_owner(), 'MEMBER') THEN
        PERFORM naksha_raise('N0009', format('Role %I may create functions in schema %s, which '
            'functions that run as the owner of the storage use; REVOKE CREATE ON SCHEMA %s FROM '
            'PUBLIC, or from the role, before it becomes a writer', role, postgis, postgis),
            '{"field": "role"}');
    END IF;
END $$;

-- Makes a role a reader or a writer of the storage, including tables that are created later. For
-- the owner of the storage, and superusers.
CREATE OR REPLACE FUNCTION naksha_grant(role text, kind text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF kind IS NULL OR kind NOT IN ('reader', 'writer') THEN
        PERFORM naksha_raise('N0000', format('Role kind must be reader or writer, not %L', kind),
                             '{"field": "kind"}');
    END IF;
    IF kind = 'writer' THEN
        PERFORM naksha_check_writer(role);
    END IF;
    PERFORM naksha_revoke(role);
    EXECUTE format('
        GRANT USAGE ON SCHEMA %1$I TO %2$I;
        GRANT SELECT ON ALL TABLES IN SCHEMA %1$I TO %2$I;
        GRANT SELECT ON ALL SEQUENCES IN SCHEMA %1$I TO %2$I;
        ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA %1$I GRANT SELECT ON TABLES TO %2$I;
        ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA %1$I GRANT SELECT ON SEQUENCES TO %2$I',
        current_schema(), role, naksha_owner());
    IF kind = 'writer' THEN
        EXECUTE format('
            GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %1$I TO %2$I;
            GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA %1$I TO %2$I;
            GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %1$I TO %2$I;
            ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA %1$I
                GRANT INSERT, UPDATE, DELETE ON TABLES TO %2$I;
            ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA %1$I
                GRANT USAGE, UPDATE ON SEQUENCES TO %2$I;
            ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA %1$I
                GRANT EXECUTE ON FUNCTIONS TO %2$I', current_schema(), role, naksha_owner());
    END IF;
END $$;
