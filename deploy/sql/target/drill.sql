-- The drill role: `drill`, as the account of `drill.scratch_dsn`. It writes databases that it makes itself, and no
-- others. Run it on the server of the scratch databases, as an administrator on MySQL 8 or 9, or MariaDB 10.6 or later;
-- adapt the names of the databases, the host and the password. The others are manifest/drill.sql and warm/drill.sql;
-- where one server has several, run each there.

CREATE USER IF NOT EXISTS coldtier_drill@'%' IDENTIFIED BY 'change-this-password';

-- The scratch databases of drill.scratch_dsn .../coldtier_scratch: coldtier_scratch_drill_ID_PLACE.
GRANT ALL ON `coldtier\_scratch\_drill\_%`.* TO coldtier_drill@'%';
