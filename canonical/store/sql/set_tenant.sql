-- Bind this transaction to a tenant: row-level security lets it see and write that one's rows only.
SELECT set_config('gnomon.tenant', :tenant, true)
