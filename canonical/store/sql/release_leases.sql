-- Give leases back that are still ours: the next worker need not wait for their end.
-- Parameters: projection, generation, owner, shards, lease_epochs.
UPDATE watermark w
   SET lease_owner = NULL, lease_until = NULL, attempts = 0
  FROM unnest(CAST(:shards AS smallint[]), CAST(:lease_epochs AS bigint[])) AS held(shard, epoch)
 WHERE w.projection = :projection AND w.generation = :generation AND w.shard = held.shard
   AND w.lease_owner = :owner AND w.lease_epoch = held.epoch
