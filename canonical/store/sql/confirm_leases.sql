-- Lock the watermarks of some shards if their leases are ours and have not ended, and the
-- generation is not lost or old by now.
-- Parameters: projection, generation, owner, shards, lease_epochs.   Returns: shard.
SELECT w.shard
  FROM watermark w
  JOIN unnest(CAST(:shards AS smallint[]), CAST(:lease_epochs AS bigint[])) AS m(shard, epoch)
    ON w.shard = m.shard
 WHERE w.projection = :projection AND w.generation = :generation AND w.lease_owner = :owner
   AND w.lease_epoch = m.epoch AND w.lease_until > now()
   AND EXISTS (SELECT FROM generation g WHERE g.projection = w.projection
        AND g.generation = w.generation AND g.state IN ('building', 'live'))
   FOR NO KEY UPDATE OF w
