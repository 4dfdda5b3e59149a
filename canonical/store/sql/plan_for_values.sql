-- Have this transaction's statements planned for their values: a generic plan of a scope, of which
-- ids are left free, would read the whole tenant.
SET LOCAL plan_cache_mode = force_custom_plan
