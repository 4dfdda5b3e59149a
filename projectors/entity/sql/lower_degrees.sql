-- Take from entities' degrees in shards; a row that would come to nothing goes.
-- Parameters: generation; tenants, entity_ids, shards, steps (parallel arrays, each row once;
--             steps are negative).
-- Isolation:  a shard's rows have one writer, so nothing waits here.
-- Index:      entity_degree_pkey.
WITH w AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:entity_ids AS uuid[]),
                         CAST(:shards AS smallint[]), CAST(:steps AS integer[]))
        AS u(tenant, entity_id, shard, step)
), emptied AS (
    DELETE FROM entity_degree d
     USING w
     WHERE d.tenant = w.tenant AND d.generation = :generation AND d.entity_id = w.entity_id
       AND d.shard = w.shard AND d.degree + w.step = 0
)
UPDATE entity_degree d
   SET degree = d.degree + w.step
  FROM w
 WHERE d.tenant = w.tenant AND d.generation = :generation AND d.entity_id = w.entity_id
   AND d.shard = w.shard AND d.degree + w.step <> 0
