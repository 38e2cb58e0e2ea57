-- The purge role: `purge` alone. It deletes warm rows that are proven cold, so keep its password from every
-- other job. Run it after `migrate`, which makes the tables that are named here, as an administrator on MySQL 8 or 9, or
-- MariaDB 10.6 or later; adapt the names of the databases, the hosts and the password. Where the manifest lies on another server than warm, run the user's
-- statement on both and each grant on its own.

CREATE USER IF NOT EXISTS coldtier_purge@'%' IDENTIFIED BY 'change-this-password';

-- Warm, purge by rows. It never updates.
GRANT SELECT, DELETE ON `im\_%`.* TO coldtier_purge@'%';

-- Warm, purge by partitions: staging tables are made, exchanged, locked and compared, given back and dropped.
-- TRIGGER is for seeing triggers, which an exchange would pass by. Leave this out with purge.strategy: rows.
GRANT CREATE, ALTER, DROP, INSERT, LOCK TABLES, TRIGGER ON `im\_%`.* TO coldtier_purge@'%';

-- Replica lag, purge.max_replica_lag: also on each replica. MySQL reads the first comment, MariaDB the second.
GRANT /*!80000 REPLICATION CLIENT */ /*M!100508 REPLICA MONITOR */ ON *.* TO coldtier_purge@'%';

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
