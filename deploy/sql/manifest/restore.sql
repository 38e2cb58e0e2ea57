-- The restore role: `restore` and `export`. It reads the manifest and the bucket. Run it on the manifest's server, after
-- `migrate`, which makes the tables that are named here, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later;
-- adapt the names of the databases, the host and the password. Where rows are restored to: target/restore.sql. In a
-- grant on a whole database `_` is a wildcard: write `\_` for it there, and a plain one in a grant on a table.

CREATE USER IF NOT EXISTS coldtier_restore@'%' IDENTIFIED BY 'change-this-password';

-- The manifest: what is where, and the record of the run.
GRANT SELECT ON `coldtier`.* TO coldtier_restore@'%';
GRANT INSERT, UPDATE ON `coldtier`.runs TO coldtier_restore@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.job_leases TO coldtier_restore@'%';

-- For --into-warm alone: leave these out where nobody does it. A hold on each slice, which it may prolong and not release,
-- keeps the purge away. MySQL lets nobody read under a lock without LOCK TABLES.
GRANT INSERT, UPDATE (expires_at, mirrored) ON `coldtier`.holds TO coldtier_restore@'%';
GRANT LOCK TABLES ON `coldtier`.* TO coldtier_restore@'%';
