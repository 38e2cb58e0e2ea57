-- The canary role: `canary plant` alone. It adds rows to warm tables and can change or delete none. Run it on each warm
-- server, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the databases, the host and
-- the password. The other half is manifest/canary.sql; where one server has both, run both there.

CREATE USER IF NOT EXISTS coldtier_canary@'%' IDENTIFIED BY 'change-this-password';

-- Warm: one grant for each database, or a pattern as here (\_ is a plain underscore). TRIGGER is for seeing
-- triggers, which a canary must not fire.
GRANT SELECT, INSERT, TRIGGER ON `im\_%`.* TO coldtier_canary@'%';
