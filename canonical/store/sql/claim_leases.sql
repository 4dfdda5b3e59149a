-- Take the lease of each of some shards that is free, has ended or is ours; attempts count here. None
-- of a generation that is lost or old.
-- Parameters: projection, generation, shards, owner, lasting_s.
-- Returns:    shard, pos, lease_epoch, attempts.
-- Isolation:  READ COMMITTED. Of two at once one waits, looks again and gets no row.
-- Index:      watermark_pkey.
UPDATE watermark w
   SET lease_owner = :owner, lease_epoch = lease_epoch + 1, attempts = attempts + 1,
       lease_until = now() + make_interval(secs => :lasting_s)
 WHERE projection = :projection AND generation = :generation AND shard = ANY(:shards)
   AND NOT halted AND (lease_until IS NULL OR lease_until <= now() OR lease_owner = :owner)
   AND NOT EXISTS (SELECT FROM projection p WHERE p.name = :projection AND p.paused)
   AND EXISTS (SELECT FROM generation g WHERE g.projection = w.projection
        AND g.generation = w.generation AND g.state IN ('building', 'live'))
RETURNING shard, pos, lease_epoch, attempts
