-- The archive role: `migrate`, `check`, `archive`, `verify`, `fetch`, `status`, `hold`, `rebuild`, `patrol`. It makes
-- the manifest's tables, so this file can be run before `migrate`. Run it on the manifest's server, as an administrator
-- on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the databases, the host and the password. The other half
-- is warm/archive.sql; where one server has both, run both there. In a grant on a whole database `_` is a wildcard:
-- write `\_` for it there, and a plain one in a grant on a table.

CREATE USER IF NOT EXISTS coldtier_archive@'%' IDENTIFIED BY 'change-this-password';

-- The manifest. CREATE, ALTER, DROP, INDEX and REFERENCES are for `migrate` alone.
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES ON `coldtier`.* TO coldtier_archive@'%';
