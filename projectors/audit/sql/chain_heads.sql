-- Read the ends of some shards' chains.
-- Parameters: generation, shards.   Returns: shard, pos, hash.
-- Index:      audit_pkey.
SELECT s.shard, a.pos, a.hash
  FROM unnest(CAST(:shards AS smallint[])) AS s(shard)
 CROSS JOIN LATERAL (
       SELECT pos, hash FROM audit
        WHERE generation = :generation AND shard = s.shard
        ORDER BY pos DESC LIMIT 1) a
