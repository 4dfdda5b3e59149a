-- Read the texts that no erase has taken, with what the audit holds of them.
-- Parameters: generation: whose watermarks bound it.
-- Returns:    shard, pos, text, text_mac, salt (NULL: gone without an erase), current (what searches
--             show, where this is the newest version; else NULL).
SELECT v.shard, v.pos, v.text, v.text_mac, m.salt,
       CASE WHEN v.version = m.version THEN m.text END AS current
  FROM memory_version v
  JOIN memory m ON m.tenant = v.tenant AND m.id = v.memory_id
  JOIN watermark w ON w.projection = 'audit' AND w.generation = :generation
                  AND w.shard = v.shard AND v.pos <= w.pos
 WHERE m.status <> 'erased'
