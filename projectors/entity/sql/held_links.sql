-- Read the links of a page's memories.
-- Parameters: generation; tenants, memory_ids (parallel arrays).
-- Isolation:  inside the transaction that moves the watermark; one worker writes a shard's links.
-- Index:      entity_link_pkey.
SELECT encode(uuid_send(l.memory_id), 'hex'), encode(uuid_send(l.entity_id), 'hex'), l.rev
  FROM unnest(CAST(:tenants AS text[]), CAST(:memory_ids AS uuid[])) AS w(tenant, memory_id)
  JOIN entity_link l
    ON l.tenant = w.tenant AND l.generation = :generation AND l.memory_id = w.memory_id
