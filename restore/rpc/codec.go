package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec is Connect's JSON with every field in the answers, so that "has_more" is
// false and not absent, and without fields in a request that do not exist: a misspelt
// anchor would silently be the newest page.
type jsonCodec struct{ name string }

// jsonCodecs are the codec under the names that the content types give it.
func jsonCodecs() []jsonCodec { return []jsonCodec{{"json"}, {"json; charset=utf-8"}} }

// Name is the part of the content type that means this codec.
func (c jsonCodec) Name() string { return c.name }

var errNotMessage = errors.New("not a protobuf message")

// Marshal writes a message. Its blanks are taken out, since protojson puts them in by chance.
func (c jsonCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errNotMessage
	}
	b, err := protojson.MarshalOptions{EmitUnpopulated: true, UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(make([]byte, 0, len(b)))
	if err := json.Compact(out, b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Unmarshal reads a message.
func (c jsonCodec) Unmarshal(b []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return errNotMessage
	}
	if len(b) == 0 {
		return errors.New("the body is empty: want a JSON object")
	}
	if err := (protojson.UnmarshalOptions{RecursionLimit: maxNesting}).Unmarshal(b, m); err != nil {
		return fmt.Errorf("read the JSON: %w", err)
	}
	return nil
}

// maxNesting is how deep the JSON of a request may be; the deepest that means something has 3 levels.
const maxNesting = 16
