-- The purge role: `purge` alone. It deletes warm rows that are proven cold, so keep its password from every other job.
-- Run it on each warm server, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the
-- databases, the host and the password. The other half is manifest/purge.sql; where one server has both, run both there.

CREATE USER IF NOT EXISTS coldtier_purge@'%' IDENTIFIED BY 'change-this-password';

-- Warm, purge by rows. It never updates.
GRANT SELECT, DELETE ON `im\_%`.* TO coldtier_purge@'%';

-- Warm, purge by partitions: staging tables are made, exchanged, locked and compared, given back and dropped.
-- TRIGGER is for seeing triggers, which an exchange would pass by. Leave this out with purge.strategy: rows.
GRANT CREATE, ALTER, DROP, INSERT, LOCK TABLES, TRIGGER ON `im\_%`.* TO coldtier_purge@'%';

-- Replica lag, purge.max_replica_lag: also on each replica. MySQL reads the first comment, MariaDB the second.
GRANT /*!80000 REPLICATION CLIENT */ /*M!100508 REPLICA MONITOR */ ON *.* TO coldtier_purge@'%';
