-- The patrol role: `verify`, `patrol`, `canary check`. It notes in the manifest what was read back, found and mended; it
-- can neither make tables, as `migrate` does, nor plans or approvals. Run it on the manifest's server, after `migrate`,
-- which makes the tables that are named here, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the
-- names of the databases, the host and the password. The other half is warm/patrol.sql; where one server has both, run
-- both there. In a grant on a whole database `_` is a wildcard: write `\_` for it there, and a plain one in a grant on a
-- table.

CREATE USER IF NOT EXISTS coldtier_patrol@'%' IDENTIFIED BY 'change-this-password';

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
