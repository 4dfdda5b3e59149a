-- Make Gnomon's roles and its database. For psql, run once on a server before the first migration,
-- by a superuser or by a login with CREATEROLE and CREATEDB:
--
--   psql -X -f bootstrap.sql -d postgres        then, in psql:  \password gnomon
--
-- The embedded mode runs this same file at each start: repeating it changes nothing.
-- Variables: database (default gnomon). Needs Postgres 17 or later.
--
--   gnomon             the login of every process; by itself it may do nothing
--   gnomon_owner       owns database and schema: migrations, keys
--   gnomon_api         requests: one tenant at a time, held by row-level security
--   gnomon_projector   projectors: read every tenant, write projections
--
-- The login takes a role on by SET ROLE and inherits none, so a connection that forgot to say whom
-- it serves as can read nothing. None of the roles is a superuser or passes row-level security.
\set ON_ERROR_STOP on
\if :{?database}
\else
    \set database gnomon
\endif

SELECT format('CREATE ROLE %I NOLOGIN', name)
  FROM unnest(ARRAY['gnomon_owner', 'gnomon_api', 'gnomon_projector']) AS name
 WHERE name NOT IN (SELECT rolname FROM pg_roles)
\gexec
SELECT 'CREATE ROLE gnomon LOGIN NOINHERIT' WHERE 'gnomon' NOT IN (SELECT rolname FROM pg_roles)
\gexec
SELECT format('GRANT %I TO gnomon WITH INHERIT FALSE, SET TRUE', name)
  FROM unnest(ARRAY['gnomon_owner', 'gnomon_api', 'gnomon_projector']) AS name
 WHERE NOT EXISTS (SELECT FROM pg_auth_members
                    WHERE roleid = name::regrole AND member = 'gnomon'::regrole
                      AND set_option AND NOT inherit_option)
\gexec
-- Who isn't a superuser has to be able to become the owner to make something that it owns.
SELECT 'GRANT gnomon_owner TO CURRENT_USER WITH INHERIT FALSE, SET TRUE'
 WHERE NOT pg_has_role('gnomon_owner', 'SET')
\gexec
SELECT format('CREATE DATABASE %I OWNER gnomon_owner TEMPLATE template0 ENCODING ''UTF8'' '
              'LOCALE_PROVIDER builtin BUILTIN_LOCALE ''C.UTF-8'' LOCALE ''C''', :'database')
 WHERE :'database' NOT IN (SELECT datname FROM pg_database)
\gexec

SET ROLE gnomon_owner;
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO gnomon;
-- Bulk writes go through a temporary table.
GRANT TEMPORARY ON DATABASE :"database" TO gnomon_api, gnomon_projector;
RESET ROLE;
