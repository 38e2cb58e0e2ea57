-- The patrol role: `verify`, `patrol`, `canary check`. It reads warm and the manifest, and notes there what was read back,
-- found and mended; it can neither make tables, as `migrate` does, nor plans or approvals. Run it after `migrate`, which
-- makes the tables that are named here, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the
-- databases, the hosts and the password. Where the manifest lies on another server than warm, run the user's statement on
-- both and each grant on its own.

CREATE USER IF NOT EXISTS coldtier_patrol@'%' IDENTIFIED BY 'change-this-password';

-- Warm: canaries, and the tables' columns.
GRANT SELECT ON `im\_%`.* TO coldtier_patrol@'%';

-- The manifest: readings, runs, leases, and what a reading or `patrol --heal` changes.
GRANT SELECT ON `coldtier`.* TO coldtier_patrol@'%';
GRANT INSERT, UPDATE ON `coldtier`.sources TO coldtier_patrol@'%';
GRANT INSERT, UPDATE ON `coldtier`.slices TO coldtier_patrol@'%';
GRANT INSERT, UPDATE ON `coldtier`.copies TO coldtier_patrol@'%';
GRANT INSERT, UPDATE ON `coldtier`.holds TO coldtier_patrol@'%';
GRANT INSERT, UPDATE ON `coldtier`.statuses TO coldtier_patrol@'%';
GRANT INSERT, UPDATE ON `coldtier`.canaries TO coldtier_patrol@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.runs TO coldtier_patrol@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.job_leases TO coldtier_patrol@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.checks TO coldtier_patrol@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.object_checks TO coldtier_patrol@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.check_rounds TO coldtier_patrol@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.pauses TO coldtier_patrol@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.server_slots TO coldtier_patrol@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.slice_progress TO coldtier_patrol@'%';
