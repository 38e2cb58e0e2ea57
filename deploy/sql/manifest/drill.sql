-- The drill role: `drill`, as the account of `manifest.dsn`. It reads the manifest, and writes nothing there but the
-- histories of drills and runs; it has no right on warm. Run it on the manifest's server, after `migrate`, which makes
-- the tables that are named here, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the
-- databases, the host and the password. The others are target/drill.sql and warm/drill.sql; where one server has several, run each there.
-- In a grant on a whole database `_` is a wildcard: write `\_` for it there, and a plain one in a grant on a table.

CREATE USER IF NOT EXISTS coldtier_drill@'%' IDENTIFIED BY 'change-this-password';

-- The manifest, the history of drills, and the record of the run.
GRANT SELECT ON `coldtier`.* TO coldtier_drill@'%';
GRANT INSERT, UPDATE ON `coldtier`.runs TO coldtier_drill@'%';
GRANT INSERT, UPDATE ON `coldtier`.job_leases TO coldtier_drill@'%';
GRANT INSERT, UPDATE ON `coldtier`.drills TO coldtier_drill@'%';
GRANT INSERT, UPDATE ON `coldtier`.drill_slices TO coldtier_drill@'%';
