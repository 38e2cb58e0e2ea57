-- The drill role: `drill`, both as the manifest's account (manifest.dsn) and as that of drill.scratch_dsn. It reads the
-- manifest, and writes nothing but the histories of drills and runs and databases that it makes itself; it has no right on warm.
-- Run it after `migrate`, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the
-- databases, the hosts and the password. Where the scratch databases lie on another server than the manifest, run the
-- user's statement on both and each grant on its own. source.databases may name this account, too, if it can log in
-- there: it asks those servers nothing but whether they are the scratch server.

CREATE USER IF NOT EXISTS coldtier_drill@'%' IDENTIFIED BY 'change-this-password';

-- The manifest, the history of drills, and the record of the run.
GRANT SELECT ON `coldtier`.* TO coldtier_drill@'%';
GRANT INSERT, UPDATE ON `coldtier`.runs TO coldtier_drill@'%';
GRANT INSERT, UPDATE ON `coldtier`.job_leases TO coldtier_drill@'%';
GRANT INSERT, UPDATE ON `coldtier`.drills TO coldtier_drill@'%';
GRANT INSERT, UPDATE ON `coldtier`.drill_slices TO coldtier_drill@'%';

-- The scratch databases of drill.scratch_dsn .../coldtier_scratch: coldtier_scratch_drill_ID_PLACE.
GRANT ALL ON `coldtier\_scratch\_drill\_%`.* TO coldtier_drill@'%';
