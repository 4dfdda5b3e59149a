-- Link memories to entities that are locked.
-- Parameters: generation; parallel arrays in the order of the memories: neighbours in the index.
-- Isolation:  a unique violation: another worker wrote this shard; drop the work.
-- Index:      entity_link_pkey.
INSERT INTO entity_link (tenant, generation, memory_id, entity_id, shard, rev)
SELECT w.tenant, :generation, w.memory_id, w.entity_id, w.shard, w.rev
  FROM unnest(CAST(:tenants AS text[]), CAST(:memory_ids AS uuid[]), CAST(:entity_ids AS uuid[]),
              CAST(:shards AS smallint[]), CAST(:revs AS bigint[]))
    AS w(tenant, memory_id, entity_id, shard, rev)
