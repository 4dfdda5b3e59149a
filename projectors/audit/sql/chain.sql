-- Read a generation's chains, each in its order.
-- Parameters: generation.
-- Returns:    an entry's fields, in the form in which they are hashed; previous, hash.
-- Index:      audit_pkey.
SELECT shard, pos, tenant, CAST(memory_id AS text), version, op, status,
       to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'), by, why,
       encode(text_mac, 'hex'), previous, hash
  FROM audit WHERE generation = :generation ORDER BY shard, pos
