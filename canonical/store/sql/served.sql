-- Read how far the generations that serve have come, against the log's heads; of a projection that
-- has none, the one that is being built.
-- Parameters: projections.
-- Returns:    projection, generation, state, shard, pos, head, halted, error_code, error, waiting_s
--             (age of the oldest event that is not applied, NULL if there is none); one snapshot.
-- Index:      generation_live, watermark_pkey, outbox_pkey.
SELECT g.projection, g.generation, g.state,
       w.shard, w.pos, s.pos AS head, w.halted, w.error_code, w.error,
       CASE WHEN s.pos > w.pos  -- a request sees the events of its own tenant only
            THEN extract(epoch FROM now() - event_time(w.shard, w.pos + 1))::float8 END AS waiting_s
  FROM generation g
  JOIN watermark w USING (projection, generation)
  JOIN shard s USING (shard)
 WHERE g.projection = ANY(:projections)
   AND (g.state = 'live'
        OR g.state = 'building' AND NOT EXISTS (
           SELECT FROM generation l WHERE l.projection = g.projection AND l.state = 'live'))
