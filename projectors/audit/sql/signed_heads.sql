-- Read the signed heads of a generation.   Parameters: generation.   Index: audit_head_pkey.
SELECT shard, pos, hash, key_id, signature FROM audit_head
 WHERE generation = :generation ORDER BY shard, pos
