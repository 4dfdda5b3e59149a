-- Read the versions that a page's events announced, in the order of the log.
-- Parameters: tenants, ids, versions, shards, positions (parallel arrays).
-- Returns:    an entry's fields, in the form in which they are hashed; no row where the version
--             isn't there or stands elsewhere.
-- Index:      memory_version_pkey.
SELECT v.shard, v.pos, v.tenant, CAST(v.memory_id AS text), v.version, v.op, v.status,
       to_char(v.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'), v.by, v.why,
       encode(v.text_mac, 'hex')
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:versions AS integer[]),
              CAST(:shards AS smallint[]), CAST(:positions AS bigint[]))
    AS e(tenant, id, version, shard, pos)
  JOIN memory_version v
    ON v.tenant = e.tenant AND v.memory_id = e.id AND v.version = e.version
   AND v.shard = e.shard AND v.pos = e.pos
 ORDER BY v.shard, v.pos
