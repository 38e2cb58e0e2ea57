package manifest

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	k := testKey(1)
	for _, c := range []struct{ got, want string }{
		{RecordKey(k, 3), "manifest/day=2026-05-01/shard=im_00.msg_00.g3.parquet"},
		{OwnerKey("im"), "manifest/owner=im.json"},
		{OwnerKey("im/ä b"), "manifest/owner=im%2F%C3%A4%20b.json"},
		{ConversationKey(k, 3, "7-abc", []byte("a b/ä%.~")), "messages/day=2026-05-01/shard=im_00.msg_00/g3-7-abc/conv=a%20b%2F%C3%A4%25.%7E.parquet"},
		{ConversationKey(k, 3, "7-abc", []byte("..")), "messages/day=2026-05-01/shard=im_00.msg_00/g3-7-abc/conv=...parquet"},
		{ObjectPrefix(k, 3, "7-abc"), "messages/day=2026-05-01/shard=im_00.msg_00/g3-7-abc/"},
	} {
		if c.got != c.want {
			t.Errorf("key %s, want %s", c.got, c.want)
		}
	}
	for _, o := range []string{"conv=1.parquet", "/x"} {
		if got := longKey("p/", shortKey("p/", "p/"+o)); got != "p/"+o {
			t.Errorf("%s comes back as %s", o, got)
		}
	}
}

// No two names have one key, no key is too long or leaves its folder.
func FuzzEscape(f *testing.F) {
	f.Add("a", "A")
	f.Add("", ".")
	f.Add("a%20", "a ")
	f.Add(strings.Repeat("x", 200), strings.Repeat("x", 201))
	f.Add(strings.Repeat("é", 127), strings.Repeat("é", 126)+"e")
	f.Add(strings.Repeat("x", 119)+"\xff\xff"+strings.Repeat("y", 100), "~")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := escape([]byte(a)), escape([]byte(b))
		if (x == y) != (a == b) {
			t.Errorf("%q and %q become %s and %s", a, b, x, y)
		}
		if len(x) > maxName || strings.ContainsAny(x, "/\\?#+ \x00") {
			t.Errorf("%q becomes %s", a, x)
		}
		if len(ConversationKey(testKey(1), 1<<31, "18446744073709551615-0123456789abcdef", []byte(a))) > 700 {
			t.Errorf("the key of %q is too long", a)
		}
	})
}
