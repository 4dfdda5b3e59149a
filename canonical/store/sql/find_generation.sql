-- Find the newest generation of a projection that is served or being built.
-- Parameters: projection.   Returns: generation, state, schema_hash.
SELECT generation, state, schema_hash FROM generation
 WHERE projection = :projection AND state IN ('live', 'building')
 ORDER BY generation DESC LIMIT 1 FOR UPDATE
