-- Write the events and the versions of records that this transaction has just written.
-- Parameters: tenant, ids, revs, versions, ops, macs (of the content; NULL: as the version before),
--             by, why, now.   Returns: memory_id, version, shard, pos.
-- Isolation:  READ COMMITTED. The transaction's last statement but the commit: append_events locks
--             the shards' counters until then.   Index: memory_pkey, memory_version_pkey.
WITH placed AS MATERIALIZED (
    SELECT * FROM append_events(CAST(:ids AS uuid[]), CAST(:revs AS bigint[]),
                                CAST(:versions AS integer[]), CAST(:ops AS text[]))
)
INSERT INTO memory_version (
    tenant, memory_id, version, op, status, text, text_mac, metadata, valid_from, valid_to,
    expires_at, shard, pos, at, by, why)
SELECT m.tenant, m.id, m.version, e.op, m.status, m.text,
       coalesce(e.mac, (SELECT b.text_mac FROM memory_version b
                         WHERE b.tenant = m.tenant AND b.memory_id = m.id
                           AND b.version = m.version - 1)),
       m.metadata, m.valid_from, m.valid_to, m.expires_at, p.shard, p.pos, :now, :by, :why
  FROM placed p
  JOIN unnest(CAST(:ids AS uuid[]), CAST(:ops AS text[]), CAST(:macs AS bytea[]))
       WITH ORDINALITY AS e(id, op, mac, ord) USING (ord)
  JOIN memory m ON m.tenant = :tenant AND m.id = e.id
RETURNING memory_id, version, shard, pos
