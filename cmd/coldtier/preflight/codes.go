package preflight

import (
	"slices"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/archive/warm"
)

// The codes of this package. Those of tables, the bucket and ClickHouse are their adapters'.
const (
	ConfigRead       Code = "CONFIG_READ"
	ConfigEpoch      Code = "CONFIG_EPOCH_IN_FUTURE"
	ConfigShortLag   Code = "CONFIG_SHORT_LAG"
	DaysCutOtherwise Code = "CONFIG_DAYS_CUT_OTHERWISE"

	ClockAgrees Code = "CLOCK_AGREES"
	ClockDrifts Code = "CLOCK_DRIFTS"
	ClockSkew   Code = "CLOCK_SKEW"

	ManifestReady       Code = "MANIFEST_READY"
	ManifestUnreachable Code = "MANIFEST_UNREACHABLE"
	ManifestUnfit       Code = "MANIFEST_UNFIT"
	ManifestReadOnly    Code = "MANIFEST_NOT_WRITABLE"
	ManifestEngine      Code = "MANIFEST_ENGINE"
	ManifestDurable     Code = "MANIFEST_NOT_DURABLE"
	ManifestLease       Code = "MANIFEST_LEASE_SHORT"
	ManifestLeaseLong   Code = "MANIFEST_LEASE_LONG"
	ManifestRights      Code = "MANIFEST_RIGHTS_MISSING"
	ManifestExcess      Code = "MANIFEST_RIGHTS_EXCESS"
	ManifestNoMigrate   Code = "MANIFEST_CANNOT_MIGRATE"
	ManifestNoStatus    Code = "MANIFEST_CANNOT_PUT_STATUS"

	AccountReady  Code = "ACCOUNT_RIGHTS"
	AccountAdmin  Code = "ACCOUNT_ADMIN"
	AccountGrants Code = "ACCOUNT_GRANT_OPTION"
	AccountShared Code = "ACCOUNT_FOR_ALL_ROLES"

	WarmSettings      Code = "WARM_UNFIT_TO_OPEN"
	WarmRights        Code = "WARM_RIGHTS_MISSING"
	WarmExcess        Code = "WARM_RIGHTS_EXCESS"
	WarmRoleNot       Code = "WARM_ROLE_NOT_POSSIBLE"
	WarmNotNeeded     Code = "WARM_NOT_FOR_ROLE"
	WarmReadOnly      Code = "WARM_READ_ONLY"
	WarmIsReplica     Code = "WARM_IS_REPLICA"
	WarmStatement     Code = "WARM_BINLOG_STATEMENT"
	WarmOneTablespace Code = "WARM_SHARED_TABLESPACE"
	PacketSmall       Code = "MYSQL_PACKET_SMALL"
	WarmStaging       Code = "WARM_STRAY_STAGING"

	ReplicaWell     Code = "REPLICA_WELL"
	ReplicaSilent   Code = "REPLICA_UNREACHABLE"
	ReplicaNot      Code = "REPLICA_IS_NONE"
	ReplicaStopped  Code = "REPLICA_STOPPED"
	ReplicaOther    Code = "REPLICA_OF_ANOTHER"
	ReplicaLags     Code = "REPLICA_LAGS"
	ReplicaWritable Code = "REPLICA_WRITABLE"
	ReplicaUnlisted Code = "REPLICA_UNLISTED"
	ReplicasUnseen  Code = "REPLICAS_UNSEEN"

	TableReady     Code = "TABLE_READY"
	TablePartition Code = "TABLE_PURGED_BY_PARTITION"
	TableRows      Code = "TABLE_PURGED_BY_ROWS"
	TableNoPurge   Code = "TABLE_NOT_PURGED"
	TablePages     Code = "TABLE_PAGES"
	TableNoPages   Code = "TABLE_NO_PAGE_INDEX"
	SampleClean    Code = "SAMPLE_CLEAN"
	SampleSplit    Code = "CONVERSATION_IN_SHARDS"
	SampleTwice    Code = "MESSAGE_ID_TWICE"
	SampleNoIndex  Code = "CONVERSATION_NO_INDEX"

	BucketReady    Code = "BUCKET_READY"
	BucketUnusable Code = "BUCKET_UNUSABLE"
	BucketForeign  Code = "BUCKET_FOREIGN"
	BucketUnowned  Code = "BUCKET_UNOWNED"
	BucketDamaged  Code = "BUCKET_OWNER_UNREADABLE"

	RowsReady       Code = "CLICKHOUSE_READY"
	RowsUnreachable Code = "CLICKHOUSE_UNREACHABLE"
	RowsUnfit       Code = "CLICKHOUSE_UNFIT"
	RowsBehind      Code = "CLICKHOUSE_LACKS_COLUMNS"

	DrillUnreachable Code = "DRILL_SCRATCH_UNREACHABLE"
	DrillRights      Code = "DRILL_RIGHTS_MISSING"

	SpillRoom     Code = "SPILL_ROOM"
	SpillLow      Code = "SPILL_ROOM_LOW"
	SpillUnusable Code = "SPILL_FOLDER_UNUSABLE"
	SpillMemory   Code = "SPILL_IN_MEMORY"
	OpenFiles     Code = "OPEN_FILES_FEW"
	MetricsLost   Code = "METRICS_TARGET_UNUSABLE"
	PauseQuery    Code = "PAUSE_QUERY_FAILS"
	MemoryLimit   Code = "MEMORY_LIMIT_LOW"

	ProbeFailed Code = Code(warm.CodeProbe)
)

// Kind is what a code means.
type Kind struct {
	Code     Code
	Severity Severity
	Refuses  bool // it forbids to go on: exit code 4
	Meaning  string
	Remedy   string
}

func catalogue() map[Code]Kind {
	m := map[Code]Kind{}
	for _, k := range Catalogue() {
		m[k.Code] = k
	}
	return m
}

// Catalogue is every code there is, in the order of docs/check.md.
func Catalogue() []Kind {
	return slices.Concat(generalKinds(), warmKinds(), storeKinds())
}

func generalKinds() []Kind {
	return []Kind{
		{ConfigRead, OK, false, "the configuration was read", ""},
		{ConfigEpoch, Error, true, "`source.snowflake.epoch` lies in the future", "correct it"},
		{ConfigShortLag, Warn, false, "`purge.lag` is below 24h", "use it for trials alone"},
		{DaysCutOtherwise, Error, true, "the days are cut otherwise than when the slices were made", "set `source.timezone` and `source.snowflake` back"},

		{ClockAgrees, OK, false, "a server's clock agrees with this machine's; the difference is told", ""},
		{ClockDrifts, Warn, false, "a clock is more than 5s off from this machine's, or ClickHouse's more than a minute", "synchronise both by NTP"},
		{ClockSkew, Error, true, "a clock that jobs rely on is more than a minute off from this machine's", "synchronise both by NTP; no job runs until then"},

		{ManifestReady, OK, false, "the manifest can be reached and is up to date", ""},
		{ManifestUnreachable, Error, false, "the manifest cannot be reached", "see that the server runs, and correct `manifest.dsn`"},
		{ManifestUnfit, Error, false, "the manifest lacks migrations, is newer than this program or half rebuilt", "run `coldtier migrate`, or what the text says"},
		{ManifestReadOnly, Error, false, "the manifest takes no writes from this account", "name the primary, and grant what `deploy/sql` says"},
		{ManifestEngine, Error, false, "a table of the manifest is on an engine without transactions", "`ALTER TABLE ... ENGINE=InnoDB`"},
		{ManifestDurable, Warn, false, "the manifest's server may lose committed transactions in a crash", "set `innodb_flush_log_at_trx_commit` = 1 and, with a binary log, `sync_binlog` = 1"},
		{ManifestLease, Warn, false, "`manifest.lease` is so short that a slow moment costs a worker its slice", "set it to 15s or more"},
		{ManifestLeaseLong, Warn, false, "`manifest.lease` is so long that the slice of a dead worker lies still for hours", "set it to some minutes at most: it is renewed while the worker lives"},
		{ManifestRights, Error, false, "the account lacks rights on the manifest that its role needs", "grant what `deploy/sql` says for the role"},
		{ManifestExcess, Warn, false, "the account may change what its role never changes in the manifest", "revoke it, see `deploy/sql`"},
		{ManifestNoMigrate, Info, false, "the account cannot run `coldtier migrate`", "nothing, where another account does"},
		{ManifestNoStatus, Info, false, "the account of `serve` cannot note statuses (PutStatus)", "nothing, where nobody calls PutStatus; else see `deploy/sql/manifest/fetch.sql`"},

		{AccountReady, OK, false, "the account has the rights that its role needs", ""},
		{AccountAdmin, Warn, false, "the account has rights of an administrator: SUPER, ALL PRIVILEGES, FILE, CREATE USER and the like", "give each role an account of its own, see `deploy/sql`"},
		{AccountGrants, Warn, false, "the account may hand its rights on (GRANT OPTION)", "revoke the grant option"},
		{AccountShared, Info, false, "one account may archive and delete", "give `purge` an account of its own, and see each by `check --for`"},

		{DrillUnreachable, Error, false, "the server of `drill.scratch_dsn` cannot be reached", "see that it runs, and correct the DSN"},
		{DrillRights, Error, false, "the account of `drill.scratch_dsn` cannot make, fill and drop its scratch databases", "grant what `deploy/sql/target/drill.sql` says"},

		{SpillRoom, OK, false, "there is room for what does not fit into `archive.memory`", ""},
		{SpillLow, Warn, false, "the folder for temporary files has less room than the biggest slices may need", "let TMPDIR name a bigger disk, or lower `archive.workers`"},
		{SpillUnusable, Error, false, "nothing can be written into the folder for temporary files", "let TMPDIR name a folder that this user may write"},
		{SpillMemory, Warn, false, "the folder for temporary files lies in memory (tmpfs), so that what is spilled counts against it", "let TMPDIR name a folder on a disk"},
		{OpenFiles, Warn, false, "this process may open few files", "raise the limit (ulimit -n) to 4096 or more"},
		{MetricsLost, Warn, false, "the folder of `metrics.textfile` cannot be written, or nothing listens at `metrics.pushgateway`: jobs run, and nobody sees their metrics", "make the folder and let this user write it, or correct the key"},
		{MemoryLimit, Warn, false, "the container's memory limit is too near to `archive.memory`", "raise the limit, or lower `archive.memory`"},

		{ProbeFailed, Warn, false, "a look failed or took too long, so that what it would have found is not known", "see the message, then run check again"},
	}
}

func warmKinds() []Kind {
	return []Kind{
		{WarmSettings, Error, false, "`source` cannot be used", "correct it as the text says"},
		{Code(warm.CodeUnreachable), Error, false, "a warm database cannot be reached", "see that the server runs, and correct `source.databases`"},
		{Code(warm.CodeNoCreatedAt), Warn, false, "`source.columns.created_at` is not set, so that the epoch cannot be compared with the rows' own time", "set it if the tables have such a column"},
		{WarmRights, Error, false, "the account lacks rights on warm tables that its role needs", "grant what `deploy/sql` says for the role"},
		{WarmExcess, Warn, false, "the account may change warm tables in ways that its role never does", "revoke it, see `deploy/sql`"},
		{WarmRoleNot, Info, false, "without `--for`: the account cannot do the job of a role", "nothing, where another account does it; `check --for ROLE` with that account judges it"},
		{WarmNotNeeded, Info, false, "with `--for`: the account may not use a warm database, and its role need not", "nothing"},
		{WarmReadOnly, Error, false, "a warm server takes no writes, so that nothing can be purged", "name the primary in `source.databases`"},
		{WarmIsReplica, Warn, false, "a warm server is a replica itself: what it does not have yet would be missing in copies", "name the primary in `source.databases`"},
		{WarmStatement, Warn, false, "a warm server replicates by statements: deletes may take other rows on its replicas", "set `binlog_format` = ROW"},
		{WarmOneTablespace, Info, false, "a warm server keeps tables in the shared tablespace: purged rows give no disk back", "set `innodb_file_per_table` and rebuild the tables"},
		{PacketSmall, Warn, false, "a server's `max_allowed_packet` is below 4 MiB", "set it to 16 MiB or more, so that large rows and batches pass"},
		{PauseQuery, Error, false, "a server refuses `archive.pause_query` or `purge.pause_query`: every run would pause there until `max_pause`", "correct the statement, or grant the account what it reads"},
		{WarmStaging, Warn, false, "a staging table of a purge is there, and no slice names it", "compare its rows with the table's, put back those that it lacks, then drop it"},

		{ReplicaWell, OK, false, "a listed replica replicates from its server; its lag is told", ""},
		{ReplicaSilent, Error, false, "a listed replica does not answer, or not to this account", "repair it, or correct `source.databases.replicas`; purge waits for it"},
		{ReplicaNot, Error, false, "a listed replica is none", "correct `source.databases.replicas`; purge waits for it"},
		{ReplicaStopped, Error, false, "a listed replica does not replicate", "repair it; purge waits for it"},
		{ReplicaOther, Warn, false, "a listed replica replicates from another server than the one it is listed for", "correct `source.databases.replicas`"},
		{ReplicaLags, Warn, false, "a listed replica lags more than `purge.max_replica_lag`", "purge pauses until it has caught up; find out what holds it"},
		{ReplicaWritable, Warn, false, "a listed replica takes writes", "set `read_only` there: rows that are written to it alone are in no copy"},
		{ReplicaUnlisted, Warn, false, "a replica, or another reader of the binary log, is attached to a warm server and not listed", "list it in `source.databases.replicas`, or purge will not wait for it"},
		{ReplicasUnseen, Info, false, "which replicas are attached cannot be seen", "grant REPLICATION SLAVE (MariaDB: REPLICATION MASTER ADMIN) or PROCESS to the account that checks, or compare by hand"},

		{TableReady, OK, false, "a table can be carried exactly", ""},
		{Code(warm.CodeRefused), Error, false, "a table cannot be archived, or a glob finds none", "as the text says: each names the column, key or engine"},
		{Code(warm.CodeUnreadable), Error, false, "a table cannot be read", "grant SELECT on it"},
		{Code(warm.CodeIDs), Error, true, "a table's message IDs do not fit `source.snowflake`: their time and the rows' own disagree, or they are zero or below", "correct epoch, time_shift or timezone; no job touches the table until then"},
		{Code(warm.CodeCreatedAt), Error, false, "the column `created_at` has a type that tells no time", "name another column, or none"},
		{Code(warm.CodeFuture), Warn, false, "a table has message IDs of the future", "look for a wrong clock among the ID generators"},
		{Code(warm.CodeAtEpoch), Warn, false, "a table has message IDs of the epoch's first day, which look like numbers that were counted", "see where they come from"},
		{Code(warm.CodeTriggers), Warn, false, "a table has triggers", "they fire for each row that the purge deletes; its partitions are not exchanged"},
		{Code(warm.CodeReferenced), Warn, false, "a foreign key points to a table", "rows that are still referenced cannot be purged"},
		{Code(warm.CodeGenerated), Info, false, "a table has generated columns", "nothing: they are archived with their values"},
		{Code(warm.CodeShape), Warn, false, "a table's columns, keys or options differ from most of its siblings'", "bring them to one definition"},
		{Code(warm.CodePartitionsOdd), Warn, false, "partitions end within a day, so that they hold parts of slices", "let partitions end where days do in `source.timezone`"},
		{Code(warm.CodeNoMaxvalue), Info, false, "a table has no partition of MAXVALUE", "add partitions before the last one ends"},
		{Code(warm.CodePartitionsEnd), Warn, false, "a table's last partition ends within 7 days, and there is none of MAXVALUE", "add partitions"},
		{Code(warm.CodePartitionsShort), Info, false, "new messages already go into the partition of MAXVALUE", "make partitions ahead of time; what lies there is purged by rows"},
		{TablePartition, OK, false, "a table will be purged by exchanging partitions; why is told", ""},
		{TableRows, OK, false, "a table will be purged by rows; why is told", ""},
		{TableNoPurge, Warn, false, "`purge.strategy` is partition, and a table cannot be purged so", "set `purge.strategy` to auto, or partition the table by whole days"},
		{TablePages, OK, false, "pages of warm rows (`fetch.warm`) walk an index", ""},
		{TableNoPages, Error, false, "`fetch.warm` is set, and a table has no index to read pages by", "add the index that the text names"},
		{SampleClean, OK, false, "the sampled conversations and message IDs lie in one table each", ""},
		{SampleSplit, Warn, false, "conversations have rows in more than one table", "find out whether they are being moved; pages of them ask several tables, and copies are made of each"},
		{SampleTwice, Warn, false, "a message ID is in more than one table", "find out which row is the right one: both would be archived"},
		{SampleNoIndex, Info, false, "tables have no index on the conversation and the cursor, so that conversations were not looked for there", "nothing, or add the index"},
	}
}

func storeKinds() []Kind {
	return []Kind{
		{BucketReady, OK, false, "a probe object was put, read, listed and removed", ""},
		{BucketUnusable, Error, false, "the bucket cannot be used", "as the text says"},
		{BucketForeign, Error, true, "the bucket's prefix belongs to another manifest", "give this one a `bucket.prefix` of its own"},
		{BucketUnowned, Warn, false, "the bucket has no owner mark", "the next archive makes it; purge deletes nothing until then"},
		{BucketDamaged, Error, false, "the bucket's owner mark cannot be read", "restore it from a former version"},
		{Code(bucket.CodeNoMetadata), Warn, false, "the store does not keep metadata of objects", "use one that keeps x-amz-meta-* headers"},
		{Code(bucket.CodeInconsistent), Error, false, "the store does not list what was just put", "use a store whose lists are consistent"},
		{Code(bucket.CodeOverwrites), Error, false, "the store overwrites objects despite If-None-Match", "use a store with conditional puts"},
		{Code(bucket.CodeEats), Error, false, "a lifecycle rule expires objects under the prefix", "take it away or keep it from the prefix"},
		{Code(bucket.CodeArchives), Warn, false, "a lifecycle rule moves objects to a class from which they cannot be read at once", "use GLACIER_IR or INTELLIGENT_TIERING"},
		{Code(bucket.CodeFormer), Warn, false, "a lifecycle rule deletes former versions within 30 days", "let them stay longer"},
		{Code(bucket.CodeNoAbort), Info, false, "no lifecycle rule aborts incomplete uploads", "add AbortIncompleteMultipartUpload of 7 days"},
		{Code(bucket.CodeSmall), Warn, false, "many objects are below 128 KiB, which never move to a cheaper class or are charged as 128 KiB", "use STANDARD, and no transition rules for the prefix"},
		{Code(bucket.CodeVersioned), OK, false, "the bucket keeps former versions", ""},
		{Code(bucket.CodeUnversioned), Warn, false, "the bucket keeps no former versions", "switch versioning on, with a rule that ends them after some months"},
		{Code(bucket.CodeLocked), Info, false, "the bucket has an object lock", "nothing: what is superseded stays until the lock ends"},
		{Code(bucket.CodeUnlocked), Info, false, "the bucket has no object lock", "nothing, unless the law or your policy asks for one"},
		{Code(bucket.CodePublic), Error, false, "anybody may read or write the bucket, by its policy or access list", "take that away and block public access"},
		{Code(bucket.CodeMayBePublic), Warn, false, "public access to the bucket is not blocked", "set all four flags of its PublicAccessBlock"},
		{Code(bucket.CodeNotPublic), OK, false, "public access to the bucket is blocked", ""},
		{Code(bucket.CodeEncryption), Warn, false, "the bucket's default encryption is not that of `bucket.sse` and `bucket.kms_key`", "make them alike"},
		{Code(bucket.CodeUnencrypted), Info, false, "neither the bucket nor `bucket.sse` encrypts", "set one, unless the store's disks are encrypted"},
		{Code(bucket.CodeRegion), Warn, false, "the bucket lies in another region than `bucket.region`", "set `bucket.region` to the bucket's own"},
		{Code(bucket.CodeEndpointNamed), Warn, false, "`bucket.endpoint` names another region than `bucket.region`", "make them alike"},
		{Code(bucket.CodeNotLooked), Info, false, "the store does not tell something of the bucket, or not to this account", "grant what the text names, or see to it by hand"},

		{RowsReady, OK, false, "ClickHouse can be reached, has the table and takes inserts", ""},
		{RowsUnreachable, Error, false, "ClickHouse cannot be reached, or would answer in part", "as the text says"},
		{RowsUnfit, Error, false, "ClickHouse's table is missing, does not fit or takes no inserts", "run `coldtier migrate`, or what the text says"},
		{RowsBehind, Warn, false, "ClickHouse's table lacks columns of the warm tables", "the next archive adds them, or run `coldtier migrate`"},
		{Code(clickhouse.CodeReadOnly), Error, false, "the user's profile is readonly", "give the user a profile without it"},
		{Code(clickhouse.CodeAsync), Warn, false, "the user's profile answers inserts before they are kept", "set `wait_for_async_insert` = 1; coldtier's own connections do"},
		{Code(clickhouse.CodeNotTaken), Error, false, "a setting that coldtier pins on its connections is overruled", "take the constraint away"},
		{Code(clickhouse.CodeEngine), Error, false, "the table has an engine that may lose what is inserted (Buffer, Null, Memory, Log)", "let `coldtier migrate` make it"},
		{Code(clickhouse.CodeTTL), Error, false, "the table or a column has a TTL", "remove it: coldtier alone drops rows there"},
		{Code(clickhouse.CodePartitions), Warn, false, "the table is not partitioned by its day", "let `coldtier migrate` make it"},
		{Code(clickhouse.CodeNoQuorum), Info, false, "the table is replicated, and an insert is answered when one replica has it", "set `insert_quorum` where a replica may be lost"},
		{Code(clickhouse.CodeReplica), Error, false, "a replica of the table takes no inserts", "bring Keeper and its session back"},
		{Code(clickhouse.CodeParts), Warn, false, "the table has so many parts that inserts will be delayed or refused", "let merges catch up"},
		{Code(clickhouse.CodeDisk), Warn, false, "a disk of ClickHouse has less than a tenth of its room left", "make room before the next archive"},
		{Code(clickhouse.CodeDiskUnknown), Info, false, "this ClickHouse does not tell how full its disks are", "watch them by other means"},
		{Code(clickhouse.CodeNotLooked), Info, false, "ClickHouse does not tell something to this user", "grant SELECT on the system tables, or see to it by hand"},
	}
}
