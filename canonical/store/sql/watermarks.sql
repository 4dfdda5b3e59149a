-- Read a generation's watermarks.   Parameters: projection, generation.   Index: watermark_pkey.
SELECT shard, pos FROM watermark WHERE projection = :projection AND generation = :generation
