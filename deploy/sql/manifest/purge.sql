-- The purge role: `purge` alone. Run it on the manifest's server, after `migrate`, which makes the tables that are named
-- here, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the databases, the host and
-- the password. The other half is warm/purge.sql; where one server has both, run both there. In a grant on a whole
-- database `_` is a wildcard: write `\_` for it there, and a plain one in a grant on a table.

CREATE USER IF NOT EXISTS coldtier_purge@'%' IDENTIFIED BY 'change-this-password';

-- The manifest, without `migrate`. Each table is named, because this account must not be able to approve its own
-- plans (`approvals`, `approved_slices`), change any plan, or set the policy that asks for approvals (`policies`). It may
-- make plans and revoke them. After an upgrade from a version that had one grant for all tables, run first:
--   REVOKE INSERT, UPDATE, DELETE ON `coldtier`.* FROM coldtier_purge@'%';
GRANT SELECT ON `coldtier`.* TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.sources TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.slices TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.table_schemas TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.copies TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.chunks TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.objects TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.segments TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.holds TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.statuses TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.runs TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.checks TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.object_checks TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.check_rounds TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.job_leases TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.stops TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.pauses TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.server_slots TO coldtier_purge@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.slice_progress TO coldtier_purge@'%';
GRANT INSERT ON `coldtier`.plans TO coldtier_purge@'%';
GRANT INSERT ON `coldtier`.plan_slices TO coldtier_purge@'%';
GRANT INSERT ON `coldtier`.revocations TO coldtier_purge@'%';
