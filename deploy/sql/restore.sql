-- The restore role: `restore` and `export`, both as the manifest's account (manifest.dsn) and as that of --into. It
-- reads the manifest and the bucket, and adds rows to databases made for what comes back; it never updates or deletes
-- a row of messages. Run it after `migrate`, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the
-- names of the databases, the hosts and the password. Where the databases lie on different servers, run the user's
-- statement on each and each grant on its own.

CREATE USER IF NOT EXISTS coldtier_restore@'%' IDENTIFIED BY 'change-this-password';

-- The manifest: what is where, and the record of the run.
GRANT SELECT ON `coldtier`.* TO coldtier_restore@'%';
GRANT INSERT, UPDATE ON `coldtier`.runs TO coldtier_restore@'%';
GRANT INSERT, UPDATE, DELETE ON `coldtier`.job_leases TO coldtier_restore@'%';

-- The databases that rows are restored into. CREATE is for --create. TRIGGER is for seeing triggers, which each row
-- that comes back would fire: without it none is seen, and none refused.
GRANT SELECT, INSERT, CREATE, TRIGGER ON `restored\_%`.* TO coldtier_restore@'%';

-- Where rows are restored into warm, --into-warm: leave these out where nobody does. A hold on each slice, which it
-- may prolong and not release, keeps the purge away. MySQL lets nobody read under a lock without LOCK TABLES.
GRANT SELECT, INSERT, TRIGGER ON `im\_%`.* TO coldtier_restore@'%';
GRANT INSERT, UPDATE (expires_at, mirrored) ON `coldtier`.holds TO coldtier_restore@'%';
GRANT LOCK TABLES ON `coldtier`.* TO coldtier_restore@'%';

-- The lag of the replicas of a target, --max-replica-lag. MySQL reads the first comment, MariaDB the second.
GRANT /*!80000 REPLICATION CLIENT */ /*M!100508 REPLICA MONITOR */ ON *.* TO coldtier_restore@'%';
