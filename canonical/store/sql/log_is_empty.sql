-- Tell whether nothing was ever written to the log.
SELECT coalesce(bool_and(pos = 0), true) FROM shard
