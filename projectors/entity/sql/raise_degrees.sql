-- Add to entities' degrees in shards.
-- Parameters: generation; tenants, entity_ids, shards, steps (parallel arrays, each row once).
-- Isolation:  a shard's rows have one writer, so nothing waits here.
-- Index:      entity_degree_pkey.
INSERT INTO entity_degree AS d (tenant, generation, entity_id, shard, degree)
SELECT w.tenant, :generation, w.entity_id, w.shard, w.step
  FROM unnest(CAST(:tenants AS text[]), CAST(:entity_ids AS uuid[]), CAST(:shards AS smallint[]),
              CAST(:steps AS integer[])) AS w(tenant, entity_id, shard, step)
    ON CONFLICT (tenant, generation, entity_id, shard)
    DO UPDATE SET degree = d.degree + excluded.degree
