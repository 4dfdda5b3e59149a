-- Claim a source event for one memory.
-- Isolation: READ COMMITTED. A twin waits here and then fails on source_event_pkey.
INSERT INTO source_event (tenant, event_id, event_part, memory_id, body_hash)
VALUES (:tenant, :event_id, :event_part, :memory_id, :body_hash)
