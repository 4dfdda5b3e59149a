-- Read the versions that a page's events announced, in the order of the log.
-- Parameters: tenants, ids, versions, shards, positions.
-- Returns:    an entry's fields; no row where the version isn't there or stands elsewhere.
-- Index:      memory_version_pkey.
SELECT v.shard, v.pos, v.tenant, v.memory_id, v.version, v.op, v.status, v.at, v.by, v.why,
       v.text_mac
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:versions AS integer[]),
              CAST(:shards AS smallint[]), CAST(:positions AS bigint[]))
    AS e(tenant, id, version, shard, pos)
  JOIN memory_version v
    ON v.tenant = e.tenant AND v.memory_id = e.id AND v.version = e.version
   AND v.shard = e.shard AND v.pos = e.pos
 ORDER BY v.shard, v.pos
