-- The fetch role: `serve` and `fetch`. It reads the manifest, and warm where fetch.warm is true; it can change
-- nothing but what PutStatus notes. Run it after `migrate`, which makes the tables that are named here, as an
-- administrator on MySQL 8 or 9, or MariaDB 10.6 or later; adapt the names of the databases, the hosts and the
-- password. Where the manifest lies on another server than warm, run the user's statement on both and each grant
-- on its own.

CREATE USER IF NOT EXISTS coldtier_fetch@'%' IDENTIFIED BY 'change-this-password';

-- The manifest. The last two are for PutStatus; leave them out where nobody calls it.
GRANT SELECT ON `coldtier`.* TO coldtier_fetch@'%';
GRANT INSERT, UPDATE ON `coldtier`.statuses TO coldtier_fetch@'%';
GRANT UPDATE ON `coldtier`.sources TO coldtier_fetch@'%';

-- Warm, for fetch.warm: one grant for each database, or a pattern as here (\_ is a plain underscore).
GRANT SELECT ON `im\_%`.* TO coldtier_fetch@'%';
