-- Make the next generation of a projection; its number was never used before.
-- Parameters: projection, state, schema_hash.   Returns: generation.
INSERT INTO generation (projection, generation, state, schema_hash, live_at)
SELECT :projection, coalesce(max(generation), 0) + 1, :state, :schema_hash,
       CASE WHEN :state = 'live' THEN now() END
  FROM generation WHERE projection = :projection
RETURNING generation
