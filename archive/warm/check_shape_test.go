package warm

import (
	"slices"
	"testing"
)

// The same statement, as MySQL 9.7 and MariaDB 10.11 show the table that it made: a platform
// whose shards lie on both has tables of one kind.
func TestOneShapeOnMySQLAndMariaDB(t *testing.T) {
	t.Parallel()
	mysql := shapeOf("CREATE TABLE `a` (\n" +
		"  `id` bigint unsigned NOT NULL,\n" +
		"  `conv` varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,\n" +
		"  `kind` tinyint NOT NULL DEFAULT '-1',\n" +
		"  `price` decimal(10,2) NOT NULL DEFAULT '0.00',\n" +
		"  `born` year DEFAULT NULL,\n" +
		"  `name` varchar(5) NOT NULL DEFAULT '',\n" +
		"  `body` mediumblob,\n" +
		"  `ext` json DEFAULT NULL,\n" +
		"  `at` timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),\n" +
		"  `seen` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,\n" +
		"  PRIMARY KEY (`id`),\n" +
		"  KEY `k` (`conv`,`id`)\n" +
		") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci\n" +
		"/*!50100 PARTITION BY RANGE (`id`)\n(PARTITION p VALUES LESS THAN MAXVALUE ENGINE = InnoDB) */")
	const mariadb = "CREATE TABLE `b` (\n" +
		"  `id` bigint(20) unsigned NOT NULL,\n" +
		"  `conv` varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,\n" +
		"  `kind` tinyint(4) NOT NULL DEFAULT -1,\n" +
		"  `price` decimal(10,2) NOT NULL DEFAULT 0.00,\n" +
		"  `born` year(4) DEFAULT NULL,\n" +
		"  `name` varchar(5) NOT NULL DEFAULT '',\n" +
		"  `body` mediumblob DEFAULT NULL,\n" +
		"  `ext` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`ext`)),\n" +
		"  `at` timestamp(3) NOT NULL DEFAULT current_timestamp(3) ON UPDATE current_timestamp(3),\n" +
		"  `seen` timestamp NOT NULL DEFAULT current_timestamp(),\n" +
		"  PRIMARY KEY (`id`),\n" +
		"  KEY `k` (`conv`,`id`)\n" +
		") ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
	if other := shapeOf(mariadb); !slices.Equal(mysql, other) {
		t.Errorf("%s", difference(mysql, other))
	}
}

// What the servers do not merely spell otherwise stays a difference.
func TestShapesThatDiffer(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"`id` bigint(20) unsigned NOT NULL", "`id` bigint NOT NULL"},
		{"`id` bigint NOT NULL", "`id` int NOT NULL"},
		{"`body` mediumblob", "`body` mediumblob NOT NULL"},
		{"`kind` tinyint NOT NULL DEFAULT '1'", "`kind` tinyint NOT NULL DEFAULT 2"},
		{"`conv` varchar(64) DEFAULT NULL", "`conv` varchar(32) DEFAULT NULL"},
		{"`conv` varchar(64) COLLATE utf8mb4_bin DEFAULT NULL", "`conv` varchar(64) DEFAULT NULL"},
		{"`ext` json DEFAULT NULL", "`ext` longtext DEFAULT NULL"},
		{"`at` timestamp(3) NULL DEFAULT current_timestamp(3)", "`at` timestamp NULL DEFAULT CURRENT_TIMESTAMP"},
	} {
		one, other := shapeOf("CREATE TABLE `a` (\n  "+pair[0]+"\n)"), shapeOf("CREATE TABLE `a` (\n  "+pair[1]+"\n)")
		if slices.Equal(one, other) {
			t.Errorf("%q and %q are taken for the same", pair[0], pair[1])
		}
	}
}
