-- Count the positions that a generation is behind.   Parameters: projection, generation.
SELECT coalesce(sum(s.pos - w.pos), 0)::bigint FROM watermark w JOIN shard s USING (shard)
 WHERE w.projection = :projection AND w.generation = :generation
