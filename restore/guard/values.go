package guard

import "context"

// Valued is a context that ends with base and has the values of another one, too: work
// that goes on when who began it has left is still known as his.
func Valued(base, of context.Context) context.Context { return valued{base, of} }

type valued struct {
	context.Context
	of context.Context
}

// Value is base's, else the other's.
func (v valued) Value(key any) any {
	if x := v.Context.Value(key); x != nil {
		return x
	}
	return v.of.Value(key)
}
