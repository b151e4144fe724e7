-- name: create_pointer
-- A name that is there is an error (1062), so that nothing else can be taken for it.
INSERT INTO naksha_pointer (realm, name, target, created, epoch, previous)
VALUES (?, ?, ?, ?, ?, ?);

-- name: create_pointers
-- For many at once. IGNORE also cuts what is too long, so lengths are checked before.
INSERT IGNORE INTO naksha_pointer (realm, name, target, created, epoch, previous)
VALUES (?, ?, ?, ?, ?, ?);

-- name: fetch_pointer
SELECT name, target, created, epoch, previous
FROM naksha_pointer
WHERE realm = ? AND name = ?;

-- name: fetch_pointers
-- The names come in hexadecimal, because JSON has no bytes.
SELECT p.name, p.target, p.created, p.epoch, p.previous
FROM JSON_TABLE(?, '$[*]' COLUMNS (
        name VARCHAR(1024) CHARACTER SET ascii PATH '$'
    )) AS wanted
STRAIGHT_JOIN naksha_pointer AS p
    ON p.realm = ? AND p.name = UNHEX(wanted.name);

-- name: list_pointers
-- Greater than the second, at least the third, less than the fourth.
SELECT name, target, created, epoch, previous
FROM naksha_pointer
WHERE realm = ? AND name > ? AND name >= ? AND name < ?
ORDER BY name
LIMIT ?;

-- name: swap_pointer
-- The driver counts the rows that match, also when they are set to what they were.
UPDATE naksha_pointer
SET target = ?, created = ?, epoch = ?, previous = ?
WHERE realm = ? AND name = ? AND target = ? AND created = ? AND epoch = ?;

-- name: delete_pointer
DELETE FROM naksha_pointer
WHERE realm = ? AND name = ? AND target = ? AND created = ? AND epoch = ?;
