-- Read the texts whose salts are still there, with what the audit holds of them.
-- Parameters: generation: whose watermarks bound it.   Returns: shard, pos, text, text_mac, salt.
SELECT v.shard, v.pos, v.text, v.text_mac, m.salt
  FROM memory_version v
  JOIN memory m ON m.tenant = v.tenant AND m.id = v.memory_id
  JOIN watermark w ON w.projection = 'audit' AND w.generation = :generation
                  AND w.shard = v.shard AND v.pos <= w.pos
 WHERE m.salt IS NOT NULL
