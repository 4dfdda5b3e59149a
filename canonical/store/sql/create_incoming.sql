-- Make this connection's staging table, once: COPY into a table with row-level security is refused.
CREATE TEMPORARY TABLE IF NOT EXISTS incoming (
    ord integer NOT NULL, id uuid NOT NULL, user_id text, agent_id text, run_id text,
    actor_id text, role text, kind text NOT NULL, text text NOT NULL, content_hash bytea NOT NULL,
    text_mac bytea NOT NULL, salt uuid NOT NULL, attributed_to text, metadata jsonb NOT NULL,
    provenance jsonb NOT NULL, valid_from timestamptz, valid_to timestamptz, expires_at timestamptz,
    event jsonb -- [event_id, event_part, hash of the body], when the record names one
) ON COMMIT DELETE ROWS
