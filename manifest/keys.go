package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxName is the longest encoded name inside a key: with its frame it stays below
// the 255 bytes that a path component has in stores that keep objects as files,
// and a whole key far below S3's 1,024.
const (
	maxName  = 180
	keptName = 120 // of a longer one; the rest is told apart by its hash
)

// escape writes a name with the bytes A-Z a-z 0-9 . _ - as they are and all others
// as %XX. A name that becomes longer than maxName is cut and ends with ~ and 32
// digits of its SHA-256; ~ occurs in no other name, so no two names have one form.
func escape(name []byte) string {
	var b strings.Builder
	kept := 0
	for _, c := range name {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-' {
			b.WriteByte(c)
		} else {
			const digits = "0123456789ABCDEF"
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
		if b.Len() <= keptName {
			kept = b.Len()
		}
	}
	if b.Len() <= maxName {
		return b.String()
	}
	sum := sha256.Sum256(name)
	return b.String()[:kept] + "~" + hex.EncodeToString(sum[:16])
}

// ShardName is a shard's name in keys.
func ShardName(s Shard) string { return escape([]byte(s.String())) }

// ObjectPrefix is what the keys of all objects of one attempt begin with, with the
// slash at its end. The attempt is unique, so that no object is ever overwritten.
func ObjectPrefix(k SliceKey, generation uint32, attempt string) string {
	return "messages/day=" + k.Day.String() + "/shard=" + ShardName(k.Shard) + "/g" + strconv.FormatUint(uint64(generation), 10) + "-" + escape([]byte(attempt)) + "/"
}

// ConversationKey is the key of the object that holds one conversation's rows.
func ConversationKey(k SliceKey, generation uint32, attempt string, conversation []byte) string {
	return ObjectPrefix(k, generation, attempt) + "conv=" + escape(conversation) + ".parquet"
}

// OwnerKey is the key of the owner mark: it says which manifest a source's copies
// under the bucket's prefix belong to.
func OwnerKey(source string) string { return "manifest/owner=" + escape([]byte(source)) + ".json" }

// RecordsPrefix is what the keys of all commit records and purge marks begin with.
const RecordsPrefix = "manifest/day="

// RecordPrefix is what the keys of the commit records and purge marks of a slice begin
// with; the number of the generation follows.
func RecordPrefix(k SliceKey) string {
	return RecordsPrefix + k.Day.String() + "/shard=" + ShardName(k.Shard) + ".g"
}

// RecordKey is the key of the commit record of a generation.
func RecordKey(k SliceKey, generation uint32) string {
	return RecordPrefix(k) + strconv.FormatUint(uint64(generation), 10) + ".parquet"
}

// HoldsPrefix is what the keys of a source's holds begin with.
func HoldsPrefix(source string) string {
	return "manifest/holds/source=" + escape([]byte(source)) + "/"
}

// HoldKey is the key of the object that is a hold.
func HoldKey(source string, id uint64) string {
	return HoldsPrefix(source) + "hold=" + strconv.FormatUint(id, 10) + ".json"
}

// StatusesPrefix is what the keys of a source's statuses begin with.
func StatusesPrefix(source string) string {
	return "manifest/statuses/source=" + escape([]byte(source)) + "/"
}
