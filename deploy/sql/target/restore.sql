-- The restore role: `restore`, as the account of --into. It adds rows to databases made for what comes back; it never
-- updates or deletes a row of messages. Run it on the server that is restored to, as an administrator on MySQL 8 or 9,
-- or MariaDB 10.6 or later; adapt the names of the databases, the host and the password. The other half is
-- manifest/restore.sql; where one server has both, run both there. For --into-warm: warm/restore.sql.

CREATE USER IF NOT EXISTS coldtier_restore@'%' IDENTIFIED BY 'change-this-password';

-- The databases that rows are restored into. CREATE is for --create. TRIGGER is for seeing triggers, which each row
-- that comes back would fire: without it none is seen, and none refused.
GRANT SELECT, INSERT, CREATE, TRIGGER ON `restored\_%`.* TO coldtier_restore@'%';

-- The lag of the replicas of a target, --max-replica-lag. MySQL reads the first comment, MariaDB the second.
GRANT /*!80000 REPLICATION CLIENT */ /*M!100508 REPLICA MONITOR */ ON *.* TO coldtier_restore@'%';
