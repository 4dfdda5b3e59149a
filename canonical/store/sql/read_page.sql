-- Read the events above the watermarks of some shards, with each shard's head.
-- Parameters: shards, after (their watermarks), per_shard (events of each at the most).
-- Returns:    shard, head, pos, memory_id, rev, version, op, tenant, at, trace; pos is NULL where the
--             shard has no event above its watermark.
--             A position that several events have comes with all of them, also at the page's end:
--             a repeat must not be cut in two and so be stepped over.
-- Isolation:  READ COMMITTED, one statement: head and events are of one snapshot.
-- Index:      outbox_pkey of each segment: (shard, pos, segment).
SELECT s.shard, s.pos AS head, e.pos, e.memory_id, e.rev, e.version, e.op, e.tenant, e.at, e.trace
  FROM unnest(CAST(:shards AS smallint[]), CAST(:after AS bigint[])) AS w(shard, pos)
  JOIN shard s ON s.shard = w.shard
  LEFT JOIN LATERAL (
       SELECT o.pos, o.memory_id, o.rev, o.version, o.op, o.tenant, o.at, o.trace
         FROM outbox o
        WHERE o.shard = w.shard AND o.pos > w.pos AND s.pos > w.pos
        ORDER BY o.pos FETCH FIRST (:per_shard) ROWS WITH TIES) e ON true
 ORDER BY s.shard, e.pos
