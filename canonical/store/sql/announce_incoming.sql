-- Write the events and the first versions of the staged records, which are in `memory` by now.
-- Parameters: tenant, by, now.   Returns: ord, shard, pos.
-- Isolation:  READ COMMITTED. The last statement but the commit: it locks the shards' counters.
WITH placed AS MATERIALIZED (
    SELECT p.*, s.orders[p.ord] AS line
      FROM (SELECT array_agg(id ORDER BY ord) AS ids, array_agg(ord ORDER BY ord) AS orders,
                   count(*)::integer AS n FROM incoming) s,
           append_events(s.ids, array_fill(1::bigint, ARRAY[s.n]), array_fill(1, ARRAY[s.n]),
                         array_fill('add'::text, ARRAY[s.n])) p
     WHERE s.n > 0
), versions AS (
    INSERT INTO memory_version (
        tenant, memory_id, version, op, status, text, text_mac, metadata, valid_from, valid_to,
        expires_at, shard, pos, at, by)
    SELECT :tenant, i.id, 1, 'add', 'active', i.text, i.text_mac, i.metadata, i.valid_from,
           i.valid_to, i.expires_at, p.shard, p.pos, :now, :by
      FROM placed p JOIN incoming i ON i.ord = p.line
)
SELECT line AS ord, shard, pos FROM placed ORDER BY line
