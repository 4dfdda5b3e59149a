-- Name the first event of a page whose version isn't there or stands elsewhere.
-- Parameters: tenants, ids, versions, shards, positions (parallel arrays).
-- Index:      memory_version_pkey.
SELECT e.tenant, e.id, e.version, e.shard, e.pos
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:versions AS integer[]),
              CAST(:shards AS smallint[]), CAST(:positions AS bigint[]))
    AS e(tenant, id, version, shard, pos)
 WHERE NOT EXISTS (
       SELECT FROM memory_version v
        WHERE v.tenant = e.tenant AND v.memory_id = e.id AND v.version = e.version
          AND v.shard = e.shard AND v.pos = e.pos)
 ORDER BY e.shard, e.pos
 LIMIT 1
