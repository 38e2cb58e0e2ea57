-- The archive role: `migrate`, `check`, `archive`, `verify`, `fetch`, `status`, `hold`, `rebuild`, `patrol`. It reads
-- warm and can change nothing there. Run it on each warm server, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or
-- later; adapt the names of the databases, the host and the password. The other half is manifest/archive.sql; where one
-- server has both, run both there.

CREATE USER IF NOT EXISTS coldtier_archive@'%' IDENTIFIED BY 'change-this-password';

-- Warm: one grant for each database, or a pattern as here (\_ is a plain underscore).
GRANT SELECT ON `im\_%`.* TO coldtier_archive@'%';

-- Replica lag, archive.max_replica_lag: also on each replica. MySQL reads the first comment, MariaDB the second.
GRANT /*!80000 REPLICATION CLIENT */ /*M!100508 REPLICA MONITOR */ ON *.* TO coldtier_archive@'%';
