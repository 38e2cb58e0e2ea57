package rpc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
)

// Errors that this package makes; they become codes in coded.
var (
	errRequest = errors.New("request refused")
	errDenied  = errors.New("not for this caller")
	errAudit   = errors.New("the audit log cannot be written")
)

// retryPending is when it is worth asking again after restore.ErrPending.
const retryPending = 200 * time.Millisecond

// coded makes of an error what the caller is told. Of what is not the caller's doing
// that is a number under which the log has the error: it may name servers and keys.
func coded(err error) (out *connect.Error, incident string) {
	switch {
	case errors.Is(err, errRequest), errors.Is(err, restore.ErrQuery), errors.Is(err, manifest.ErrStatus):
		return connect.NewError(connect.CodeInvalidArgument, err), ""
	case errors.Is(err, restore.ErrTenant):
		return connect.NewError(connect.CodePermissionDenied, restore.ErrTenant), ""
	case errors.Is(err, errDenied):
		return connect.NewError(connect.CodePermissionDenied, err), ""
	case errors.Is(err, restore.ErrPending):
		e := connect.NewError(connect.CodeUnavailable, restore.ErrPending)
		if d, err := retryInfo(retryPending); err == nil {
			e.AddDetail(d)
		}
		return e, ""
	case errors.Is(err, errAudit):
		n := newIncident()
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%w; incident %s", errAudit, n)), n
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, context.Canceled), ""
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), ""
	}
	n := newIncident()
	return connect.NewError(connect.CodeInternal, fmt.Errorf("internal error; the server's log has it as incident %s", n)), n
}

func newIncident() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// retryInfo is a google.rpc.RetryInfo, which every gRPC client knows. It is described
// here rather than imported, since it is all that would be used of a large module; and
// it is not registered, so that it cannot collide with that module in a program that has both.
func retryInfo(after time.Duration) (*connect.ErrorDetail, error) {
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("google/rpc/error_details.proto"), Package: proto.String("google.rpc"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/duration.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("RetryInfo"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: proto.String("retry_delay"), Number: proto.Int32(1), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".google.protobuf.Duration"),
		}}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		return nil, fmt.Errorf("describe RetryInfo: %w", err)
	}
	d := file.Messages().ByName("RetryInfo")
	m := dynamicpb.NewMessage(d)
	m.Set(d.Fields().ByNumber(1), protoreflect.ValueOfMessage(durationpb.New(after).ProtoReflect()))
	return connect.NewErrorDetail(m)
}
