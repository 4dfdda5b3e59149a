-- Compare a generation's entries with the versions that lie below its watermarks, both ways.
-- Parameters: generation, limit.   Returns: shard, pos, problem.
SELECT coalesce(v.shard, a.shard) AS shard, coalesce(v.pos, a.pos) AS pos,
       CASE WHEN a.pos IS NULL THEN 'a version has no entry'
            WHEN v.pos IS NULL THEN 'an entry has no version'
            ELSE 'entry and version differ' END AS problem
  FROM (SELECT * FROM audit WHERE generation = :generation) a
  FULL JOIN (SELECT v.* FROM memory_version v
               JOIN watermark w ON w.projection = 'audit' AND w.generation = :generation
                               AND w.shard = v.shard AND v.pos <= w.pos) v
    ON v.tenant = a.tenant AND v.memory_id = a.memory_id AND v.version = a.version
 WHERE a.pos IS NULL OR v.pos IS NULL
    OR (v.shard, v.pos, v.op, v.status, v.at, v.text_mac)
       IS DISTINCT FROM (a.shard, a.pos, a.op, a.status, a.at, a.text_mac)
    OR (v.by, v.why) IS DISTINCT FROM (a.by, a.why)
 LIMIT :limit
