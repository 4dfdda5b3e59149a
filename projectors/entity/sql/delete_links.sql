-- Remove links.
-- Parameters: generation; tenants, memory_ids, entity_ids (parallel arrays).
-- Isolation:  fewer rows than links: another worker wrote this shard; drop the work.
-- Index:      entity_link_pkey.
DELETE FROM entity_link l
 USING unnest(CAST(:tenants AS text[]), CAST(:memory_ids AS uuid[]), CAST(:entity_ids AS uuid[]))
    AS w(tenant, memory_id, entity_id)
 WHERE l.tenant = w.tenant AND l.generation = :generation
   AND l.memory_id = w.memory_id AND l.entity_id = w.entity_id
