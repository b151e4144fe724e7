-- Documents written by plain SQL: jsonb accepts some that the library refuses, because clients
-- could not parse them (naksha.model.json_rules).

-- The problem of a document, null if it is valid.
CREATE OR REPLACE FUNCTION naksha_json_problem(jsondata jsonb) RETURNS text
IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN jsondata @? 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")'
    THEN 'jsondata is nested more than 100 levels deep'
    WHEN jsondata @? 'strict $.** ? (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308)'
    THEN 'A number in jsondata is out of range' END;

-- Raises an error if a document is invalid.
CREATE OR REPLACE FUNCTION naksha_check_document(
    c naksha_collection, feature_id text, jsondata jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text := naksha_json_problem(jsondata);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM naksha_raise('N0006', problem, jsonb_build_object('collection', naksha_name(c),
            'feature', feature_id, 'field', 'jsondata'));
    END IF;
END $$;
