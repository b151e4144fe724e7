-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8;

-- name: pointers_scan
SELECT r, n, c FROM {{schema}}.p
WHERE (r, n) > ($1::text, $2::text) ORDER BY r, n LIMIT $3::int8;

-- name: objects_scan
SELECT r, i, a, y, c FROM {{schema}}.o
WHERE (r, i, a) > ($1::text, $2::int8, $3::int4) ORDER BY r, i, a LIMIT $4::int8;

-- name: pointers_delete_scanned
WITH deleted AS (
    DELETE FROM {{schema}}.p
    USING unnest($1::text[], $2::text[], $3::int8[]) AS seen (r, n, c)
    WHERE p.r = seen.r AND p.n = seen.n AND p.c = seen.c
    RETURNING true
)
SELECT count(*) FROM deleted;

-- name: objects_delete_scanned
WITH deleted AS (
    DELETE FROM {{schema}}.o
    USING unnest($1::text[], $2::int8[], $3::int4[], $4::int8[]) AS seen (r, i, a, c)
    WHERE o.r = seen.r AND o.i = seen.i AND o.a = seen.a AND o.c = seen.c
    RETURNING true
)
SELECT count(*) FROM deleted;

-- name: pointers_delete_some
-- A limit that keeps lock waits short; it is a literal, so that the planner knows that the rows are
-- few.
WITH deleted AS (
    DELETE FROM {{schema}}.p
    USING (SELECT n FROM {{schema}}.p WHERE r = $1::text ORDER BY n LIMIT 1000) AS doomed
    WHERE p.r = $1::text AND p.n = doomed.n
    RETURNING true
)
SELECT count(*) FROM deleted;

-- name: objects_delete_some
WITH deleted AS (
    DELETE FROM {{schema}}.o
    USING (SELECT i, a FROM {{schema}}.o WHERE r = $1::text ORDER BY i, a LIMIT 1000) AS doomed
    WHERE o.r = $1::text AND o.i = doomed.i AND o.a = doomed.a
    RETURNING true
)
SELECT count(*) FROM deleted;
