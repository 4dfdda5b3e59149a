-- Keep a link from one record to another of its tenant.   Index: link_pkey.
INSERT INTO link (tenant, source, relation, target)
VALUES (:tenant, :source, :relation, :target)
ON CONFLICT DO NOTHING
