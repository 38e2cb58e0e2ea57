-- The purge role: `purge` alone. It deletes warm rows that are proven cold, so keep its password from every
-- other job. Run as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the
-- databases, the hosts and the password. Where the manifest lies on another server than warm, run the user's
-- statement on both and each grant on its own.

CREATE USER IF NOT EXISTS coldtier_purge@'%' IDENTIFIED BY 'change-this-password';

-- Warm, purge by rows. It never updates.
GRANT SELECT, DELETE ON `im\_%`.* TO coldtier_purge@'%';

-- Warm, purge by partitions: staging tables are made, exchanged, locked and compared, given back and dropped.
-- TRIGGER is for seeing triggers, which an exchange would pass by. Leave this out with purge.strategy: rows.
GRANT CREATE, ALTER, DROP, INSERT, LOCK TABLES, TRIGGER ON `im\_%`.* TO coldtier_purge@'%';

-- Replica lag, purge.max_replica_lag: also on each replica. MySQL reads the first comment, MariaDB the second.
GRANT /*!80000 REPLICATION CLIENT */ /*M!100508 REPLICA MONITOR */ ON *.* TO coldtier_purge@'%';

-- The manifest, without `migrate`.
GRANT SELECT, INSERT, UPDATE, DELETE ON `coldtier`.* TO coldtier_purge@'%';
