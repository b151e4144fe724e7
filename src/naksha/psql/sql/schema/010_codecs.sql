-- Numbers and identifiers: txn, GUID, UUID, quad key. The same in Python (naksha.model).

-- txn = year·10^15 + month·10^13 + day·10^11 + sequence, always UTC.
CREATE OR REPLACE FUNCTION naksha_txn(ts timestamptz, seq bigint) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN (extract(year FROM ts AT TIME ZONE 'UTC') * 1000000000000000
    + extract(month FROM ts AT TIME ZONE 'UTC') * 10000000000000
    + extract(day FROM ts AT TIME ZONE 'UTC') * 100000000000)::int8 + seq;

CREATE OR REPLACE FUNCTION naksha_txn_day(txn int8) RETURNS date
IMMUTABLE PARALLEL SAFE
RETURN make_date((txn / 1000000000000000)::int, (txn / 10000000000000 % 100)::int,
                 (txn / 100000000000 % 100)::int);

-- First txn of a day; that of the first day for -infinity, which is what asyncpg makes of it.
CREATE OR REPLACE FUNCTION naksha_day_txn(day date) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN day <= date '0001-01-01' THEN 1010100000000000 ELSE
    (extract(year FROM day) * 1000000000000000 + extract(month FROM day) * 10000000000000
     + extract(day FROM day) * 100000000000)::int8 END;

-- Everything of a GUID but the last part: '{storage}:{collection}:{year}:{month}:{day}:'. Stable,
-- not immutable, because it calls a stable function: otherwise the planner would not inline it.
CREATE OR REPLACE FUNCTION naksha_guid_prefix(storage_id text, collection_id text, txn int8)
RETURNS text STABLE PARALLEL SAFE
RETURN storage_id || ':' || collection_id || ':' || txn / 1000000000000000
    || ':' || txn / 10000000000000 % 100 || ':' || txn / 100000000000 % 100 || ':';

CREATE OR REPLACE FUNCTION naksha_guid(storage_id text, collection_id text, txn int8, i int8)
RETURNS text STABLE PARALLEL SAFE
RETURN naksha_guid_prefix(storage_id, collection_id, txn) || i;

-- The 128-bit form: object id 60 bits around the version nibble 4, then variant 10, year - 2000,
-- month, day, object type (0 transaction, 1 feature) and the 40-bit storage number. Null for a year
-- that does not fit: before 2000 and after 3023.
CREATE OR REPLACE FUNCTION naksha_uuid(object_id int8, txn int8, object_type int, storage int8)
RETURNS uuid IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN txn / 1000000000000000 BETWEEN 2000 AND 3023 THEN
    (lpad(to_hex(object_id >> 12), 12, '0') || '4' || lpad(to_hex(object_id & 4095), 3, '0')
     || to_hex((2 << 22) | ((txn / 1000000000000000 - 2000)::int << 12)
               | ((txn / 10000000000000 % 100)::int << 8)
               | ((txn / 100000000000 % 100)::int << 3) | object_type)
     || lpad(to_hex(storage), 10, '0'))::uuid END;

CREATE OR REPLACE FUNCTION naksha_hex_int(hex text) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN ('x' || lpad(hex, 16, '0'))::bit(64)::int8;

CREATE OR REPLACE FUNCTION naksha_uuid_parts(
    id uuid, OUT object_id int8, OUT day date, OUT object_type int, OUT storage int8)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT naksha_hex_int(substr(h.hex, 1, 12)) << 12 | naksha_hex_int(substr(h.hex, 14, 3)),
           make_date((h.date >> 12 & 1023)::int + 2000, (h.date >> 8 & 15)::int,
                     (h.date >> 3 & 31)::int),
           (h.date & 7)::int,
           naksha_hex_int(substr(h.hex, 23, 10))
      FROM (SELECT replace(id::text, '-', '') AS hex,
                   naksha_hex_int(substr(replace(id::text, '-', ''), 17, 6)) AS date) AS h;
END;

CREATE OR REPLACE FUNCTION naksha_tx_uuid(txn int8, storage int8) RETURNS uuid
IMMUTABLE PARALLEL SAFE
RETURN naksha_uuid(txn % 100000000000, txn, 0, storage);

CREATE OR REPLACE FUNCTION naksha_feature_uuid(
    collection_number int, i int8, txn int8, storage int8) RETURNS uuid
IMMUTABLE PARALLEL SAFE
RETURN naksha_uuid(collection_number::int8 << 40 | i, txn, 1, storage);

-- Column (or row) of the quadtree cell at level 18, written in binary and read as decimal: the
-- two binary numbers then add up digit by digit to the base-4 quad key.
CREATE OR REPLACE FUNCTION naksha_quad_axis(part float8) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN (least(greatest(floor(part * 262144), 0), 262143)::int)::bit(18)::text::int8;

CREATE OR REPLACE FUNCTION naksha_qrid(lon float8, lat float8) RETURNS text
IMMUTABLE PARALLEL SAFE STRICT
RETURN lpad((naksha_quad_axis((lon + 180) / 360)
             + 2 * naksha_quad_axis((90 - lat) / 180))::text, 18, '0');

-- The quad key of the centre of the box. Bit for bit the same as naksha_qrid of the two halved
-- sums, but halving the smallest number is an error in SQL, and a nested function call is planned
-- at each call.
CREATE OR REPLACE FUNCTION naksha_qrid(geo geometry) RETURNS text
IMMUTABLE PARALLEL SAFE STRICT
RETURN lpad((naksha_quad_axis((ST_XMin(geo) + ST_XMax(geo) + 360) / 2 / 360)
             + 2 * naksha_quad_axis((180 - (ST_YMin(geo) + ST_YMax(geo))) / 2 / 180))::text,
            18, '0');

-- The leaf of a feature id, '0' to 'f'.
CREATE OR REPLACE FUNCTION naksha_leaf(feature_id text) RETURNS text
IMMUTABLE PARALLEL SAFE
RETURN substring(md5(feature_id), 1, 1);
