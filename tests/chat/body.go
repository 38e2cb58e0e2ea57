package chat

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Types of messages.
const (
	typeText   = 1
	typeHTML   = 2
	typeCard   = 3
	typeBinary = 4
)

var (
	words = strings.Fields(`the of and to in is that for it as was with be by on not he this are or his from at which but have an had they you
were their one all we can her has there been if more when will would who so no out up into them then she some what about other time like only my do
could than its now over such our man me even most made after also did many before must through years where much your way well down should because each
just those people how too little state good very make world still see own work men day get here old life both between being under three never know same
last another while us off might great go come since against right came take used himself few house use during without again place American around however
home small found thought went say part once general high upon school every don't does got united left number course war until always away something fact
water less public put think almost hand enough far took head yet government system set better nothing why end build release deploy server message
meeting tomorrow lunch review merge branch coffee ticket invoice customer weekend thanks please okay lol sorry schedule train photo link lemma proof`)
	cjk   = []rune(`的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以会家可下而过天去能对小多然于心学么之都好看起发当没成只如事把还用第样道想作种开美总从无情己面最女但现前些所同日手又行意动方期它头经长儿回位分爱老因很给名法间斯知世什两次使身者被高已亲其进此话常与活正感見説話時間行東京日本語ありがとうカタカナ한국어안녕하세요`)
	emoji = []string{"😀", "😂", "🙏", "👍", "🎉", "❤️", "👨‍👩‍👧‍👦", "🇩🇪", "👋🏽", "🔥", "🤷‍♀️", "✅", "🥳", "🐈", "☕"}
	tags  = []string{"p", "code", "em", "strong", "blockquote", "li", "pre"}
	// Bytes that escaping, C strings and line-based tools get wrong, NUL first.
	nasty = []string{"\x00", "\t", "\n", "\r\n", "\\", "'", "\"", "\x1a", "\x1b[31m", "\x7f", "%s", "\\N", "\u2028", "\ufeff", "`"}
)

// appendBody appends a body and gives its message type.
func appendBody(dst []byte, r *rand.Rand) ([]byte, int8) {
	n := draw(r, bodyKnots, 0)
	if n == 0 {
		return dst, typeText
	}
	start := len(dst)
	kind := int8(typeText)
	var piece func([]byte) []byte
	switch p := r.IntN(100); {
	case p < 45:
		piece = func(b []byte) []byte { return append(append(b, word(r)...), ' ') }
	case p < 67:
		kind = typeHTML
		piece = func(b []byte) []byte { return appendHTML(b, r) }
	case p < 82:
		piece = func(b []byte) []byte {
			for range 2 + r.IntN(12) {
				b = utf8.AppendRune(b, cjk[r.IntN(len(cjk))])
			}
			return append(b, "，"...)
		}
	case p < 91:
		piece = func(b []byte) []byte { return append(append(append(b, word(r)...), ' '), emoji[r.IntN(len(emoji))]...) }
	case p < 95:
		kind = typeCard
		piece = func(b []byte) []byte { return appendCard(b, r) }
	case p < 97:
		piece = func(b []byte) []byte { return append(append(b, word(r)...), nasty[r.IntN(len(nasty))]...) }
	default:
		for len(dst)-start < n {
			v := r.Uint64()
			dst = append(dst, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), 0)
		}
		return dst[:start+n], typeBinary
	}
	for len(dst)-start < n {
		dst = piece(dst)
	}
	// Cut to the length, on the border of a character, and fill up.
	cut := start + n
	for cut > start && cut < len(dst) && !utf8.RuneStart(dst[cut]) {
		cut--
	}
	dst = dst[:cut]
	for len(dst)-start < n {
		dst = append(dst, '.')
	}
	return dst, kind
}

// word is more often a frequent one.
func word(r *rand.Rand) string {
	u := r.Float64()
	return words[int(u*u*float64(len(words)))]
}

func appendHTML(b []byte, r *rand.Rand) []byte {
	tag := tags[r.IntN(len(tags))]
	b = append(append(append(b, '<'), tag...), '>')
	for range 3 + r.IntN(20) {
		b = append(append(b, word(r)...), ' ')
	}
	if r.IntN(6) == 0 {
		b = append(b, `<a href="https://chat.example/#narrow/stream/`...)
		b = strconv.AppendUint(b, r.Uint64N(1e6), 10)
		b = append(b, `/near/`...)
		b = strconv.AppendUint(b, r.Uint64N(1e9), 10)
		b = append(b, `">&lt;`...)
		b = append(append(b, word(r)...), "&gt;</a>"...)
	}
	return append(append(append(b, "</"...), tag...), ">\n"...)
}

func appendCard(b []byte, r *rand.Rand) []byte {
	b = append(b, `{"type":"image","w":`...)
	b = strconv.AppendInt(b, 100+r.Int64N(4000), 10)
	b = append(b, `,"h":`...)
	b = strconv.AppendInt(b, 100+r.Int64N(4000), 10)
	b = append(b, `,"sha":"`...)
	v := r.Uint64()
	b = hex.AppendEncode(b, []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24), byte(v >> 32), byte(v >> 40), byte(v >> 48), byte(v >> 56)})
	return append(b, `","alt":"\u00e9\n"}`...)
}
