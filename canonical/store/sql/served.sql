-- Read how far the live generations of some projections have come, against the log's heads.
-- Parameters: projections.
-- Returns:    projection, generation, shard, pos, head, halted, error_code, error, waiting_s (age of
--             the oldest event that is not applied, NULL if there is none); one snapshot.
-- Index:      generation_live, watermark_pkey, outbox_pkey.
SELECT g.projection, g.generation, w.shard, w.pos, s.pos AS head, w.halted, w.error_code, w.error,
       extract(epoch FROM now() - (
           SELECT o.at FROM outbox o
            WHERE o.shard = w.shard AND o.pos = w.pos + 1 AND s.pos > w.pos))::float8 AS waiting_s
  FROM generation g
  JOIN watermark w USING (projection, generation)
  JOIN shard s USING (shard)
 WHERE g.projection = ANY(:projections) AND g.state = 'live'
