-- Tell whether a generation may begin to serve: it is still being built, and as far as the log but
-- for some positions.   Parameters: projection, generation, may_have_come.
-- Isolation:  READ COMMITTED, after decide_generation.
SELECT EXISTS (SELECT FROM generation WHERE projection = :projection AND generation = :generation
                                        AND state = 'building')
   AND (SELECT coalesce(sum(s.pos - w.pos), 0) FROM watermark w JOIN shard s USING (shard)
         WHERE w.projection = :projection AND w.generation = :generation) <= :may_have_come
