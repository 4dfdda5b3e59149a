-- Move a generation's watermarks on some shards, each if it stands where we read it and its lease
-- is ours and has not ended, and its generation is not lost or old by now.
-- Parameters: projection, generation, owner, shards, expected, reached, lease_epochs.
-- Returns:    shard. Fewer than asked: another worker took over; roll back and drop the work.
-- Isolation:  READ COMMITTED.   Index: watermark_pkey.
UPDATE watermark w
   SET pos = m.reached, moved_at = now(), attempts = 0, error_code = NULL, error = NULL,
       held_since = NULL
  FROM unnest(CAST(:shards AS smallint[]), CAST(:expected AS bigint[]),
              CAST(:reached AS bigint[]), CAST(:lease_epochs AS bigint[]))
    AS m(shard, expected, reached, lease_epoch)
 WHERE w.projection = :projection AND w.generation = :generation AND w.shard = m.shard
   AND w.pos = m.expected AND w.lease_owner = :owner AND w.lease_epoch = m.lease_epoch
   AND w.lease_until > now()
   AND EXISTS (SELECT FROM generation g WHERE g.projection = w.projection
        AND g.generation = w.generation AND g.state IN ('building', 'live'))
RETURNING w.shard
