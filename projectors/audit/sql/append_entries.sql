-- Append the versions that a page's events announced to their shards' chains.
-- Parameters: generation, beginning (the hash before a chain's first entry); tenants, ids,
--             versions, shards, positions (parallel arrays).
-- Returns:    a row for each entry; fewer than events: a version isn't there or stands elsewhere.
-- Isolation:  READ COMMITTED, after the watermark was moved under its lease: no other worker
--             appends. A unique violation is a second entry of one version, or at one position.
-- Bytes:      an entry is hashed as projectors/audit/mapping.py writes it, which verifies it; a
--             test holds the two together.
-- Index:      memory_version_pkey, audit_pkey.
WITH heads AS MATERIALIZED (
    SELECT s.shard, coalesce(a.hash, :beginning) AS hash
      FROM (SELECT DISTINCT unnest(CAST(:shards AS smallint[])) AS shard) s
      LEFT JOIN LATERAL (
           SELECT hash FROM audit
            WHERE generation = :generation AND shard = s.shard
            ORDER BY pos DESC LIMIT 1) a ON true
), entries AS (
    SELECT v.shard, v.pos, v.tenant, v.memory_id, v.version, v.op, v.status, v.at, v.by, v.why,
           v.text_mac,
           convert_to(
               '[1,' || v.shard || ',' || v.pos || ',' || CAST(to_json(v.tenant) AS text)
               || ',"' || v.memory_id || '",' || v.version
               || ',' || CAST(to_json(v.op) AS text) || ',' || CAST(to_json(v.status) AS text)
               || ',"' || to_char(v.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')
               || '+00:00",' || coalesce(CAST(to_json(v.by) AS text), 'null')
               || ',' || coalesce(CAST(to_json(v.why) AS text), 'null')
               || ',"' || encode(v.text_mac, 'hex') || '"]', 'UTF8') AS bytes
      FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:versions AS integer[]),
                  CAST(:shards AS smallint[]), CAST(:positions AS bigint[]))
        AS e(tenant, id, version, shard, pos)
      JOIN memory_version v
        ON v.tenant = e.tenant AND v.memory_id = e.id AND v.version = e.version
       AND v.shard = e.shard AND v.pos = e.pos
), hashed AS (
    SELECT e.*, h.hash AS head,
           audit_chain(e.bytes, h.hash) OVER (PARTITION BY e.shard ORDER BY e.pos) AS hash
      FROM entries e JOIN heads h USING (shard)
)
INSERT INTO audit (generation, shard, pos, tenant, memory_id, version, op, status, at, by, why,
                   text_mac, previous, hash)
SELECT :generation, shard, pos, tenant, memory_id, version, op, status, at, by, why, text_mac,
       coalesce(lag(hash) OVER (PARTITION BY shard ORDER BY pos), head), hash
  FROM hashed
