-- Tell whether a mark of an engine is ahead of its shard's head, or names another event than the log
-- holds there. Marks of an earlier epoch are no news: the epoch was raised over them, and they stay
-- until their shards move on.   Parameters: shards, positions, ids, revs, epochs.
SELECT coalesce(bool_or(s.pos < m.pos OR (o.pos IS NOT NULL AND
                        (o.memory_id <> m.id OR o.rev <> m.rev))), false)
  FROM unnest(CAST(:shards AS smallint[]), CAST(:positions AS bigint[]), CAST(:ids AS uuid[]),
              CAST(:revs AS bigint[]), CAST(:epochs AS bigint[])) AS m(shard, pos, id, rev, epoch)
  JOIN shard s ON s.shard = m.shard
  LEFT JOIN outbox o ON o.shard = m.shard AND o.pos = m.pos
 WHERE m.epoch >= (SELECT max(epoch) FROM log_epoch)
