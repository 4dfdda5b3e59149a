-- Bind this transaction to a tenant: row-level security lets it see and write that one's rows only.
-- Parameters: tenant, trace (of the write, as W3C writes it; empty: none): its events will keep it.
SELECT set_config('gnomon.tenant', :tenant, true), set_config('gnomon.trace', :trace, true)
