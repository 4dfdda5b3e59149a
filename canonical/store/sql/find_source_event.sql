-- Find the memory that a source event made before, and the position of its first version.
-- Parameters: tenant, event_id, event_part.   Returns: memory_id, body_hash, shard, pos.
-- Index:      source_event_pkey, memory_version_pkey.
SELECT s.memory_id, s.body_hash, v.shard, v.pos
  FROM source_event s
  JOIN memory_version v
    ON v.tenant = s.tenant AND v.memory_id = s.memory_id AND v.version = 1
 WHERE s.tenant = :tenant AND s.event_id = :event_id AND s.event_part = :event_part
