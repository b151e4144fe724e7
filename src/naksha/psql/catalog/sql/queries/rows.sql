-- Every call is one statement, in a transaction of its own. Batches are arrays, in the order of
-- their keys, so that concurrent calls lock the same rows in the same order.

-- name: pointer_create
INSERT INTO {{schema}}.p (r, n, t, c, e, v)
VALUES ($1::text, $2::text, $3::bytea, $4::int8, $5::int8, $6::bytea)
ON CONFLICT (r, n) DO NOTHING RETURNING true;

-- name: pointers_create
WITH made AS (
    INSERT INTO {{schema}}.p (r, n, t, c, e, v)
    SELECT $1::text, * FROM unnest($2::text[], $3::bytea[], $4::int8[], $5::int8[], $6::bytea[])
    ON CONFLICT (r, n) DO NOTHING RETURNING true
)
SELECT count(*) FROM made;

-- name: pointers_fetch
SELECT n, t, c, e, v FROM {{schema}}.p WHERE r = $1::text AND n = ANY ($2::text[]);

-- name: pointers_list
-- The range includes the last name of the previous page, which is excluded.
SELECT n, t, c, e, v FROM {{schema}}.p
WHERE r = $1::text AND n >= $2::text AND n < $3::text AND n <> $4::text
ORDER BY n LIMIT $5::int8;

-- name: pointer_swap
UPDATE {{schema}}.p SET t = $5::bytea, c = $6::int8, e = $7::int8, v = $8::bytea
WHERE r = $1::text AND n = $2::text AND t = $3::bytea AND c = $4::int8 AND e = $9::int8
RETURNING true;

-- name: pointer_delete
DELETE FROM {{schema}}.p
WHERE r = $1::text AND n = $2::text AND t = $3::bytea AND c = $4::int8 AND e = $5::int8
RETURNING true;

-- name: objects_fetch
SELECT o.i, o.a, o.k, o.y, o.v, o.c, o.x
FROM unnest($2::int8[], $3::int4[]) AS wanted (i, a)
JOIN {{schema}}.o ON o.r = $1::text AND o.i = wanted.i AND o.a = wanted.a;

-- name: objects_write
INSERT INTO {{schema}}.o (r, i, a, k, y, v, c, x)
SELECT $1::text, *
FROM unnest($2::int8[], $3::int4[], $4::int4[], $5::text[], $6::bytea[], $7::int8[], $8::text[])
ON CONFLICT (r, i, a) DO UPDATE
    SET k = excluded.k, y = excluded.y, v = excluded.v, c = excluded.c, x = excluded.x;

-- name: publish
-- Objects and pointer in one transaction, hence with one flush to disk. The objects are written
-- whether or not the pointer is as expected.
WITH written AS (
    INSERT INTO {{schema}}.o (r, i, a, k, y, v, c, x)
    SELECT $1::text, * FROM unnest(
        $10::int8[], $11::int4[], $12::int4[], $13::text[], $14::bytea[], $15::int8[], $16::text[]
    )
    ON CONFLICT (r, i, a) DO UPDATE
        SET k = excluded.k, y = excluded.y, v = excluded.v, c = excluded.c, x = excluded.x
)
UPDATE {{schema}}.p SET t = $5::bytea, c = $6::int8, e = $7::int8, v = $8::bytea
WHERE r = $1::text AND n = $2::text AND t = $3::bytea AND c = $4::int8 AND e = $9::int8
RETURNING true;

-- name: objects_delete
DELETE FROM {{schema}}.o USING unnest($2::int8[], $3::int4[]) AS doomed (i, a)
WHERE o.r = $1::text AND o.i = doomed.i AND o.a = doomed.a;

-- name: object_insert
INSERT INTO {{schema}}.o (r, i, a, k, y, v, c, x) VALUES
    ($1::text, $2::int8, $3::int4, $4::int4, $5::text, $6::bytea, $7::int8, $8::text)
ON CONFLICT (r, i, a) DO NOTHING RETURNING true;

-- name: object_replace
UPDATE {{schema}}.o SET k = $4::int4, v = $6::bytea, c = $7::int8, x = $8::text
WHERE r = $1::text AND i = $2::int8 AND a = $3::int4 AND y = $5::text AND x = $9::text
RETURNING true;

-- name: object_delete_if
DELETE FROM {{schema}}.o
WHERE r = $1::text AND i = $2::int8 AND a = $3::int4 AND x = $4::text
RETURNING true;
