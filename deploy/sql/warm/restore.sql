-- The restore role: `restore --into-warm`, as the account of --into. It adds rows and never updates or deletes one.
-- Leave this file out where nobody restores into warm. Run it on each warm server, as an administrator on MySQL 8 or 9,
-- or MariaDB 10.6 or later; adapt the names of the databases, the host and the password. The other half is
-- manifest/restore.sql; where one server has both, run both there.

CREATE USER IF NOT EXISTS coldtier_restore@'%' IDENTIFIED BY 'change-this-password';

-- TRIGGER is for seeing triggers, which each row that comes back would fire: without it none is seen, and none refused.
GRANT SELECT, INSERT, TRIGGER ON `im\_%`.* TO coldtier_restore@'%';

-- The lag of the replicas of a target, --max-replica-lag. MySQL reads the first comment, MariaDB the second.
GRANT /*!80000 REPLICATION CLIENT */ /*M!100508 REPLICA MONITOR */ ON *.* TO coldtier_restore@'%';
