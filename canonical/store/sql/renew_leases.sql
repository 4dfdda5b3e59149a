-- Extend leases that nobody has taken over.
-- Parameters: projection, generation, owner, shards, lease_epochs, lasting_s.   Returns: shard.
UPDATE watermark w
   SET lease_until = now() + make_interval(secs => :lasting_s)
  FROM unnest(CAST(:shards AS smallint[]), CAST(:lease_epochs AS bigint[])) AS held(shard, epoch)
 WHERE w.projection = :projection AND w.generation = :generation AND w.shard = held.shard
   AND w.lease_owner = :owner AND w.lease_epoch = held.epoch
RETURNING w.shard
