-- Claim the source events of the staged records; those that are taken keep their first memory.
-- Ordered, so that two bulks never wait in a circle.   Index: source_event_pkey.
INSERT INTO source_event (tenant, event_id, event_part, memory_id, body_hash)
SELECT :tenant, event ->> 0, (event ->> 1)::integer, id, decode(event ->> 2, 'hex')
  FROM incoming WHERE event IS NOT NULL ORDER BY event ->> 0, (event ->> 1)::integer, ord
ON CONFLICT DO NOTHING
