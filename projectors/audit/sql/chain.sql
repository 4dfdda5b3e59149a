-- Read a generation's chains, each in its order.   Parameters: generation.   Index: audit_pkey.
SELECT shard, pos, tenant, memory_id, version, op, status, at, by, why, text_mac, previous, hash
  FROM audit WHERE generation = :generation ORDER BY shard, pos
