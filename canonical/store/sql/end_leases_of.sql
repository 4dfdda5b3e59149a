-- End the leases of processes that are gone, known by how their owners' names begin. Attempts stay:
-- whoever held a lease died. One that wakes up all the same is nobody's owner any more.
-- Parameters: beginning (of lease_owner).
-- Isolation:  READ COMMITTED. A row that a dying transaction still holds is left to end by itself.
UPDATE watermark w
   SET lease_owner = NULL, lease_until = NULL
  FROM (SELECT projection, generation, shard FROM watermark
         WHERE starts_with(lease_owner, :beginning)
           FOR NO KEY UPDATE SKIP LOCKED) AS gone
 WHERE (w.projection, w.generation, w.shard) = (gone.projection, gone.generation, gone.shard)
