-- The fetch role: `serve` and `fetch`. It reads the manifest, and can change nothing but what PutStatus notes. Run it on
-- the manifest's server, after `migrate`, which makes the tables that are named here, as an administrator on MySQL 8 or
-- 9, or MariaDB 10.6 or later; adapt the names of the databases, the host and the password. The other half is
-- warm/fetch.sql; where one server has both, run both there. In a grant on a whole database `_` is a wildcard: write
-- `\_` for it there, and a plain one in a grant on a table.

CREATE USER IF NOT EXISTS coldtier_fetch@'%' IDENTIFIED BY 'change-this-password';

-- The manifest. The last two are for PutStatus; leave them out where nobody calls it.
GRANT SELECT ON `coldtier`.* TO coldtier_fetch@'%';
GRANT INSERT, UPDATE ON `coldtier`.statuses TO coldtier_fetch@'%';
GRANT UPDATE ON `coldtier`.sources TO coldtier_fetch@'%';
