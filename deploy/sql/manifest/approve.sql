-- The approve role: `approve`, `plan list`, `plan show` and `plan revoke`, and nothing else. It reads the manifest, and
-- can change nothing there but add approvals and revocations; it has no right on warm. Who approves is told apart by
-- this account: give each person one of his own (coldtier_approve_ann, coldtier_approve_bob), and never the password of
-- the account that makes the plans. Run it on the manifest's server, after `migrate`, which makes the tables that are
-- named here, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the name of the database, the host
-- and the password. In a grant on a whole database `_` is a wildcard: write `\_` for it there, and a plain one in a
-- grant on a table.

CREATE USER IF NOT EXISTS coldtier_approve@'%' IDENTIFIED BY 'change-this-password';

GRANT SELECT ON `coldtier`.* TO coldtier_approve@'%';
GRANT INSERT ON `coldtier`.approvals TO coldtier_approve@'%';
GRANT INSERT ON `coldtier`.approved_slices TO coldtier_approve@'%';
GRANT INSERT ON `coldtier`.revocations TO coldtier_approve@'%';
