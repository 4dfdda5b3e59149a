-- Read the state of every generation that is not old, shard by shard, against the log's heads.
-- Returns: projection, paused, generation, state, generation_error, shard, pos, head, lease_owner,
--          leased (whether the lease holds now), halted, error_code, error, held_s, moved_s,
--          waiting_s, parked; one snapshot.
SELECT p.name AS projection, p.paused, g.generation, g.state, g.error AS generation_error, w.shard,
       w.pos, s.pos AS head, w.lease_owner, coalesce(w.lease_until > now(), false) AS leased,
       w.halted, w.error_code, w.error,
       extract(epoch FROM now() - w.held_since)::float8 AS held_s,
       extract(epoch FROM now() - w.moved_at)::float8 AS moved_s,
       extract(epoch FROM now() - (
           SELECT o.at FROM outbox o
            WHERE o.shard = w.shard AND o.pos = w.pos + 1 AND s.pos > w.pos))::float8 AS waiting_s,
       (SELECT count(*) FROM parked k
         WHERE k.projection = g.projection AND k.generation = g.generation
           AND k.shard = w.shard) AS parked
  FROM projection p
  LEFT JOIN generation g ON g.projection = p.name AND g.state IN ('live', 'building', 'lost')
  LEFT JOIN watermark w ON w.projection = g.projection AND w.generation = g.generation
  LEFT JOIN shard s ON s.shard = w.shard
 ORDER BY p.name, g.generation, w.shard
