-- The patrol role: `verify`, `patrol`, `canary check`. It reads warm. Run it on each warm server, as an administrator on
-- MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the databases, the host and the password. The other half is
-- manifest/patrol.sql; where one server has both, run both there.

CREATE USER IF NOT EXISTS coldtier_patrol@'%' IDENTIFIED BY 'change-this-password';

-- Warm: canaries, and the tables' columns.
GRANT SELECT ON `im\_%`.* TO coldtier_patrol@'%';
