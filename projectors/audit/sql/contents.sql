-- Read the contents that no erase has taken, with what the audit holds of them.
-- Parameters: generation: whose watermarks bound it.
-- Returns:    shard, pos; text, metadata, valid_from, valid_to, expires_at; text_mac, salt (NULL:
--             gone without an erase), shown (whether the record, which searches show, says the
--             same, where this is its newest version; else NULL).
SELECT v.shard, v.pos, v.text, v.metadata, v.valid_from, v.valid_to, v.expires_at, v.text_mac,
       m.salt,
       CASE WHEN v.version = m.version
            THEN (m.text, m.metadata, m.valid_from, m.valid_to, m.expires_at)
                 IS NOT DISTINCT FROM
                 (v.text, v.metadata, v.valid_from, v.valid_to, v.expires_at) END AS shown
  FROM memory_version v
  JOIN memory m ON m.tenant = v.tenant AND m.id = v.memory_id
  JOIN watermark w ON w.projection = 'audit' AND w.generation = :generation
                  AND w.shard = v.shard AND v.pos <= w.pos
 WHERE m.status <> 'erased'
