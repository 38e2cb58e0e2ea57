-- The canary role: `canary plant` alone. It adds rows to warm tables and can change or delete none. Run it after
-- `migrate`, which makes the tables that are named here, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or
-- later; adapt the names of the databases, the hosts and the password. Where the manifest lies on another server
-- than warm, run the user's statement on both and each grant on its own.

CREATE USER IF NOT EXISTS coldtier_canary@'%' IDENTIFIED BY 'change-this-password';

-- Warm: one grant for each database, or a pattern as here (\_ is a plain underscore). TRIGGER is for seeing
-- triggers, which a canary must not fire.
GRANT SELECT, INSERT, TRIGGER ON `im\_%`.* TO coldtier_canary@'%';

-- The manifest.
GRANT SELECT ON `coldtier`.* TO coldtier_canary@'%';
GRANT INSERT, UPDATE ON `coldtier`.canaries TO coldtier_canary@'%';
GRANT INSERT, UPDATE ON `coldtier`.runs TO coldtier_canary@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.job_leases TO coldtier_canary@'%';
