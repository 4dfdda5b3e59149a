-- Read the newest hash of some shards' chains.
-- Parameters: generation, shards.   Returns: shard, hash (NULL: the chain is empty).
-- Isolation:  READ COMMITTED, after the watermark was moved under its lease: no other worker appends.
-- Index:      audit_pkey.
SELECT s.shard, a.hash
  FROM unnest(CAST(:shards AS smallint[])) AS s(shard)
  LEFT JOIN LATERAL (
       SELECT hash FROM audit
        WHERE generation = :generation AND shard = s.shard
        ORDER BY pos DESC LIMIT 1) a ON true
