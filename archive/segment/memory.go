package segment

// What a reader keeps of its memory for the next row group. Many are at work at once, and
// the memory of a big row group costs little beside what it holds.
const (
	keptPages = 256 << 10 // bytes of uncompressed pages
	keptRows  = 1 << 10   // of each column's values
)

// pages is memory for the uncompressed pages of one row group after another.
type pages struct {
	kept []byte
	want int // bytes of the pages of this row group
}

// reset begins the next row group: nothing points into the pages of the last.
func (p *pages) reset() {
	if size := min(p.want, keptPages); size > cap(p.kept) {
		p.kept = make([]byte, 0, size)
	}
	p.kept, p.want = p.kept[:0], 0
}

// take gives empty memory for a page of n bytes.
func (p *pages) take(n int) []byte {
	p.want += n
	at := len(p.kept)
	if n > cap(p.kept)-at {
		return make([]byte, 0, n)
	}
	p.kept = p.kept[:at+n]
	return p.kept[at : at : at+n]
}

// reset makes it the reader of a column's next row group. A batch copies its values, so
// none points into the memory.
func (c *columnReader) reset(of *column, p *pages) {
	*c = columnReader{column: of, pages: p, bits: kept(c.bits), texts: kept(c.texts), dictBits: kept(c.dictBits), dictTexts: kept(c.dictTexts), index: kept(c.index)}
}

// kept is the memory of values, emptied, unless it is much.
func kept[T any](values []T) []T {
	if cap(values) > keptRows {
		return nil
	}
	return values[:0]
}
