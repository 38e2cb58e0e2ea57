package guard

// Held is how many tenants and conversations the limits remember.
func (l *Limits) Held() (tenants, conversations int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tenants), len(l.conversations)
}

// Fill sets every counter.
func (s *Sketch) Fill(v uint32) {
	for _, row := range s.rows {
		for i := range row {
			row[i] = v
		}
	}
}
