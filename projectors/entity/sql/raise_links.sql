-- Bring links that stay to their memory's rev.
-- Parameters: generation; tenants, memory_ids, entity_ids, revs (parallel arrays).
-- Isolation:  fewer rows than links: another worker wrote this shard; drop the work.
-- Index:      entity_link_pkey.
UPDATE entity_link l
   SET rev = w.rev
  FROM unnest(CAST(:tenants AS text[]), CAST(:memory_ids AS uuid[]), CAST(:entity_ids AS uuid[]),
              CAST(:revs AS bigint[])) AS w(tenant, memory_id, entity_id, rev)
 WHERE l.tenant = w.tenant AND l.generation = :generation
   AND l.memory_id = w.memory_id AND l.entity_id = w.entity_id AND l.rev < w.rev
