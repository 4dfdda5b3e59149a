-- Lock the watermarks of some shards if their leases are ours and have not ended.
-- Parameters: projection, generation, owner, shards, lease_epochs.   Returns: shard.
SELECT w.shard
  FROM watermark w
  JOIN unnest(CAST(:shards AS smallint[]), CAST(:lease_epochs AS bigint[])) AS m(shard, epoch)
    ON w.shard = m.shard
 WHERE w.projection = :projection AND w.generation = :generation AND w.lease_owner = :owner
   AND w.lease_epoch = m.epoch AND w.lease_until > now()
   FOR NO KEY UPDATE OF w
