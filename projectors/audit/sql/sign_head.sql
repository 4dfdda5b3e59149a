-- Keep a signature over a chain's head.
INSERT INTO audit_head (generation, shard, pos, hash, key_id, signature)
VALUES (:generation, :shard, :pos, :hash, :key_id, :signature)
ON CONFLICT DO NOTHING
