-- name: fetch_object
SELECT id, part, parts, type, value, created_us, token
FROM naksha_object
WHERE realm = ? AND id = ? AND part = ?;

-- name: fetch_objects
SELECT o.id, o.part, o.parts, o.type, o.value, o.created_us, o.token
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', part INT PATH '$[1]')) AS wanted
STRAIGHT_JOIN naksha_object AS o
    ON o.realm = ? AND o.id = wanted.id AND o.part = wanted.part;

-- name: insert_object
-- A row that is there is an error (1062), so that nothing else can be taken for it.
INSERT INTO naksha_object (realm, id, part, parts, type, value, created_us, token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: write_plain
INSERT INTO naksha_object (realm, id, part, parts, type, value, created_us, token)
VALUES (?, ?, ?, ?, ?, ?, ?, NULL)
ON DUPLICATE KEY UPDATE
    parts = VALUES(parts), type = VALUES(type), value = VALUES(value),
    created_us = VALUES(created_us), token = NULL;

-- name: write_with_token
-- On its own, because the protocol wants a column without NULL or one with some type.
INSERT INTO naksha_object (realm, id, part, parts, type, value, created_us, token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    parts = VALUES(parts), type = VALUES(type), value = VALUES(value),
    created_us = VALUES(created_us), token = VALUES(token);

-- name: replace_object
UPDATE naksha_object
SET parts = ?, value = ?, created_us = ?, token = ?
WHERE realm = ? AND id = ? AND part = ? AND type = ? AND token = ?;

-- name: delete_object_if
DELETE FROM naksha_object
WHERE realm = ? AND id = ? AND part = ? AND token = ?;

-- name: delete_objects
DELETE o
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', part INT PATH '$[1]')) AS wanted
STRAIGHT_JOIN naksha_object AS o
    ON o.realm = ? AND o.id = wanted.id AND o.part = wanted.part;
