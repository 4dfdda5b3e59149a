-- Find what a mutation's key answered before, with the positions of its versions.
-- Parameters: tenant, mutation_id, chunk.   Returns: command, body_hash, memory_ids, versions,
--             outcome, shards, positions (in the order of memory_ids), or no row.
-- Index:      mutation_pkey, memory_version_pkey.
SELECT m.command, m.body_hash, m.memory_ids, m.versions, m.outcome,
       array_agg(v.shard ORDER BY a.ord) FILTER (WHERE a.ord IS NOT NULL) AS shards,
       array_agg(v.pos ORDER BY a.ord) FILTER (WHERE a.ord IS NOT NULL) AS positions
  FROM mutation m
  LEFT JOIN LATERAL unnest(m.memory_ids, m.versions) WITH ORDINALITY AS a(id, version, ord) ON true
  LEFT JOIN memory_version v
    ON v.tenant = m.tenant AND v.memory_id = a.id AND v.version = a.version
 WHERE m.tenant = :tenant AND m.mutation_id = :mutation_id AND m.chunk = :chunk
 GROUP BY m.tenant, m.mutation_id, m.chunk
