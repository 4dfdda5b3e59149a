-- Begin a new generation's watermarks at the start of the log.   Parameters: projection, generation.
INSERT INTO watermark (projection, generation, shard)
SELECT :projection, :generation, shard FROM shard
