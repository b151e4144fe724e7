-- name: now
-- In UTC: UNIX_TIMESTAMP reads the time zone of the session, and ends in 2038 on some servers.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));

-- name: scan_pointers
-- The page after a key; written out, because the optimizer makes no range of a row comparison.
SELECT realm, name, created
FROM naksha_pointer
WHERE realm > ? OR (realm = ? AND name > ?)
ORDER BY realm, name
LIMIT ?;

-- name: scan_objects
SELECT realm, id, part, type, created_us
FROM naksha_object
WHERE realm > ? OR (realm = ? AND (id > ? OR (id = ? AND part > ?)))
ORDER BY realm, id, part
LIMIT ?;

-- name: delete_scanned_pointers
-- Realms and names come in hexadecimal, because JSON has no bytes.
DELETE p
FROM JSON_TABLE(?, '$[*]' COLUMNS (
        realm   VARCHAR(1024) CHARACTER SET ascii PATH '$[0]',
        name    VARCHAR(1024) CHARACTER SET ascii PATH '$[1]',
        created BIGINT PATH '$[2]'
    )) AS seen
STRAIGHT_JOIN naksha_pointer AS p
    ON p.realm = UNHEX(seen.realm) AND p.name = UNHEX(seen.name) AND p.created = seen.created;

-- name: delete_scanned_objects
DELETE o
FROM JSON_TABLE(?, '$[*]' COLUMNS (
        realm      VARCHAR(1024) CHARACTER SET ascii PATH '$[0]',
        id         BIGINT PATH '$[1]',
        part       INT PATH '$[2]',
        created_us BIGINT PATH '$[3]'
    )) AS seen
STRAIGHT_JOIN naksha_object AS o
    ON o.realm = UNHEX(seen.realm) AND o.id = seen.id AND o.part = seen.part
    AND o.created_us = seen.created_us;

-- name: delete_pointers_of_realm
DELETE FROM naksha_pointer WHERE realm = ? ORDER BY realm, name LIMIT ?;

-- name: delete_objects_of_realm
DELETE FROM naksha_object WHERE realm = ? ORDER BY realm, id, part LIMIT ?;
