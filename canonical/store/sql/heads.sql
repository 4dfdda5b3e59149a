-- Read the position of each shard's newest event.
SELECT shard, pos FROM shard ORDER BY shard
