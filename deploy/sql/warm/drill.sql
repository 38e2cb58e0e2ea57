-- The drill role: `drill` asks each server that `source.databases` names whether it is that of the scratch databases, and
-- nothing else: it logs in there and has no right. Run it on each warm server, as an administrator on MySQL 8 or 9, or
-- MariaDB 10.6 or later; adapt the host and the password. The others are manifest/drill.sql and target/drill.sql.

CREATE USER IF NOT EXISTS coldtier_drill@'%' IDENTIFIED BY 'change-this-password';
