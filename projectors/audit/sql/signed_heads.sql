-- Read the signed heads that a generation's chains have to reproduce, in the order of the chains:
-- its own, and those of older generations, which were made from the same versions.
-- Parameters: generation.   Returns: shard, pos, generation, hash, key_id, signature.
-- Index:      audit_head_pkey.
SELECT shard, pos, generation, hash, key_id, signature FROM audit_head
 WHERE generation <= :generation ORDER BY shard, pos, generation
