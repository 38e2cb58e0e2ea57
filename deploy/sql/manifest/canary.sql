-- The canary role: `canary plant` alone. Run it on the manifest's server, after `migrate`, which makes the tables that
-- are named here, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the databases, the
-- host and the password. The other half is warm/canary.sql; where one server has both, run both there. In a grant on a
-- whole database `_` is a wildcard: write `\_` for it there, and a plain one in a grant on a table.

CREATE USER IF NOT EXISTS coldtier_canary@'%' IDENTIFIED BY 'change-this-password';

-- The manifest.
GRANT SELECT ON `coldtier`.* TO coldtier_canary@'%';
GRANT INSERT, UPDATE ON `coldtier`.canaries TO coldtier_canary@'%';
GRANT INSERT, UPDATE ON `coldtier`.runs TO coldtier_canary@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.job_leases TO coldtier_canary@'%';
