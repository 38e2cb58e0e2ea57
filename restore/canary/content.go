package canary

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// longest is how many bytes the longest content has at most.
const longest = 256 << 10

// stream gives bytes that a canary's ID, its shard and the number of a message decide.
func stream(id string, shard manifest.Shard, n, size int) []byte {
	out := make([]byte, 0, size+sha256.Size)
	for at := uint64(0); len(out) < size; at++ {
		h := sha256.New()
		_, _ = fmt.Fprintf(h, "coldtier canary\x00%s\x00%s\x00%d\x00", id, shard, n) // a hash takes everything
		_ = binary.Write(h, binary.BigEndian, at)
		out = h.Sum(out)
	}
	return out[:size]
}

// makes says whether contents can be made for a column.
func makes(c message.Column) bool {
	switch c.Kind {
	case message.Text, message.Bytes:
		return !c.Enumerated
	case message.Int, message.Uint:
		return true
	}
	return false
}

// content is the content of message n of a canary; nil is NULL.
func content(c message.Column, id string, shard manifest.Shard, n int) []byte {
	if n == 2 && c.Nullable {
		return nil
	}
	switch c.Kind {
	case message.Int, message.Uint:
		return strconv.AppendUint(nil, uint64(stream(id, shard, n, 1)[0])%100, 10)
	case message.Bytes:
		return fixed(c, opaque(c, id, shard, n))
	}
	if c.SourceType == "json" { // as the server writes it itself
		return []byte(`{"canary": "` + hex.EncodeToString(stream(id, shard, n, 16)) + `"}`)
	}
	text := words(c, id, shard, n)
	if c.Fits(text) && (c.Charset == "utf8mb4" || !wide(text)) && !(strings.HasPrefix(c.SourceType, "char(") && bytes.HasSuffix(text, []byte(" "))) {
		return text
	}
	return clip([]byte(hex.EncodeToString(stream(id, shard, n, 16))), room(c))
}

// wide says whether a text has a character of four bytes.
func wide(text []byte) bool {
	for _, r := range string(text) {
		if r > 0xffff {
			return true
		}
	}
	return false
}

// words is a text that stores tend to spoil.
func words(c message.Column, id string, shard manifest.Shard, n int) []byte {
	own := hex.EncodeToString(stream(id, shard, n, 16))
	switch n {
	case 1:
		return []byte{}
	case 3:
		return []byte("'\"`\\ \\' '' \n\r\t\x1a %s %00 <&> -- ; " + own)
	case 4:
		return []byte("a\x00b\x00\x00" + own + "\x00")
	case 5:
		return []byte("𝄞 😀 👩‍👩‍👧 e\u0301 ﷽ \u202e" + own)
	case 6:
		long := room(c)
		return clip(bytes.Repeat([]byte(own+" "), long/len(own)+1), long)
	case 7:
		return []byte("  \t" + own + "  ")
	case 8:
		var runes []rune
		for _, b := range stream(id, shard, n, 64) {
			runes = append(runes, 0x4e00+rune(b))
		}
		return []byte(string(runes))
	}
	return []byte("canary " + id + " " + own)
}

// opaque is the same for bytes.
func opaque(c message.Column, id string, shard manifest.Shard, n int) []byte {
	own := stream(id, shard, n, 64)
	switch n {
	case 1:
		return []byte{}
	case 3:
		return append([]byte("'\"`\\ \\' '' \n\r\t\x1a %s -- ; "), own...)
	case 4:
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		return clip(all, room(c))
	case 5:
		return append([]byte("\xff\xfe\xc0\x80\xf0\x28 😀 \xed\xa0\x80"), own...)
	case 6:
		return stream(id, shard, n, room(c))
	case 7:
		return append([]byte("\x00\x00 "), append(own, 0, ' ')...)
	}
	return own
}

// fixed cuts bytes to what the column takes; a BINARY has one length.
func fixed(c message.Column, b []byte) []byte {
	b = clip(b, room(c))
	if n, ok := length(c, "binary"); ok {
		return append(b, bytes.Repeat([]byte{'.'}, max(n-len(b), 0))...)
	}
	return b
}

func clip(b []byte, n int) []byte { return b[:min(len(b), n)] }

// room is how many bytes, or single-byte characters, a column takes, and longest at most.
func room(c message.Column) int {
	for _, of := range []string{"char", "varchar", "binary", "varbinary"} {
		if n, ok := length(c, of); ok {
			return min(n, longest)
		}
	}
	switch c.SourceType {
	case "tinytext", "tinyblob":
		return 255
	case "text", "blob":
		return 65535
	}
	return longest
}

// length reads the length of a type such as varchar(64).
func length(c message.Column, of string) (int, bool) {
	rest, ok := strings.CutPrefix(c.SourceType, of+"(")
	if !ok {
		return 0, false
	}
	text, _, _ := strings.Cut(rest, ")")
	n, err := strconv.Atoi(text)
	return n, err == nil
}
