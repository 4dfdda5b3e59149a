-- Say why some shards, whose leases are ours, don't go on. What was tried and failed by an engine
-- or an invariant is no attempt at a bad record.
-- Parameters: projection, generation, owner, shards, lease_epochs, halted, code, message.
UPDATE watermark w
   SET halted = :halted, error_code = :code, error = :message, attempts = 0,
       held_since = coalesce(w.held_since, now())
  FROM unnest(CAST(:shards AS smallint[]), CAST(:lease_epochs AS bigint[])) AS held(shard, epoch)
 WHERE w.projection = :projection AND w.generation = :generation AND w.shard = held.shard
   AND w.lease_owner = :owner AND w.lease_epoch = held.epoch
