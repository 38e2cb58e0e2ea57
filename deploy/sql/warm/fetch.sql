-- The fetch role: `serve` and `fetch`, where `fetch.warm` is true. It reads warm; where `fetch.warm` is false it needs
-- no right there, and this file is not needed. Run it on each warm server, as an administrator on MySQL 8 or 9, or
-- MariaDB 10.6 or later; adapt the names of the databases, the host and the password. The other half is
-- manifest/fetch.sql; where one server has both, run both there.

CREATE USER IF NOT EXISTS coldtier_fetch@'%' IDENTIFIED BY 'change-this-password';

-- Warm, for fetch.warm: one grant for each database, or a pattern as here (\_ is a plain underscore).
GRANT SELECT ON `im\_%`.* TO coldtier_fetch@'%';
