package bucket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// What can be wrong with an object or a bucket. A missing object, a missing bucket
// and a denied one are three things: only the first says that an object is not there.
var (
	ErrNotFound    = errors.New("object not found")
	ErrNoBucket    = errors.New("no such bucket")
	ErrDenied      = errors.New("access denied")
	ErrThrottled   = errors.New("throttled by the object store")
	ErrCorrupt     = errors.New("bytes are not those that were written or asked for")
	ErrArchived    = errors.New("object is in an archive storage class")
	ErrClockSkew   = errors.New("clock differs from the object store's")
	ErrExists      = errors.New("another object is there already")
	ErrUnavailable = errors.New("object store does not answer properly")
)

// Kinds of trouble that callers of the package never see alone.
var (
	errPrecondition = errors.New("precondition failed")
	errNoUpload     = errors.New("no such upload")
	errRefused      = errors.New("request refused by the object store")
	errStalled      = errors.New("connection stalled")
	errPartsLeft    = errors.New("parts of an upload may be left")
)

// bodyError is an error of the caller's body, told from those of the connection
// that the transport reports in the same way.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "read body: " + e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// failure is an error of this package: what was tried on which object, what is
// wrong, and what to do about it.
type failure struct {
	op, object string
	problem
}

// problem is what is wrong, and how much trying again is worth.
type problem struct {
	kind   error  // a sentinel
	code   string // S3's name for it
	detail string
	remedy string
	cause  error // of the caller's own making: a context's end, a body's error
	lost   bool  // there was no answer, so what was asked may have been done
	tries  int   // tries in all that it is worth; 1 when trying again is useless, 0 as many as configured
}

func (f *failure) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s: %v", f.op, f.object, f.kind)
	if f.detail != "" {
		fmt.Fprintf(&s, ": %s", f.detail)
	}
	if f.remedy != "" {
		fmt.Fprintf(&s, "; %s", f.remedy)
	}
	return s.String()
}

func (f *failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

// throttles are S3's and other stores' names for "slower, please".
func throttles(code string) bool {
	switch code {
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
		"RequestThrottledException", "RequestLimitExceeded", "TooManyRequests", "TooManyRequestsException", "BandwidthLimitExceeded",
		"LimitExceededException", "PriorRequestNotComplete":
		return true
	}
	return false
}

// diagnose says what an error of a try means. ctx is the try's own context.
func diagnose(ctx context.Context, err error) problem {
	var p *problemError
	if errors.As(err, &p) { // found by this package, not by S3
		return p.problem
	}
	var body *bodyError
	if errors.As(err, &body) {
		return problem{kind: body, cause: body.err, tries: 1}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return problem{kind: ErrUnavailable, code: "stalled", detail: cause.Error()}
	}
	code, message, status, request := answer(err)
	if text := shorten(err); strings.Contains(text, "get identity") || strings.Contains(text, "retrieve credentials") {
		// What answered, if anything, is not the store but who gives the credentials: its
		// "not found" says nothing of an object.
		p := problem{kind: ErrDenied, code: "credentials", detail: text, tries: 1, remedy: "give credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role)"}
		if status >= 500 || throttles(code) || status == http.StatusTooManyRequests {
			p.kind, p.tries = ErrUnavailable, 0
		}
		return p
	}
	detail := describe(code, message, status, request)
	if detail == "" {
		return connection(err)
	}
	p2 := byCode(code, status)
	p2.code, p2.detail = code, detail
	return p2
}

// answer takes apart what S3 answered; all is empty when it did not.
func answer(err error) (code, message string, status int, request string) {
	var api smithy.APIError
	if errors.As(err, &api) {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	var res *smithyhttp.ResponseError
	if errors.As(err, &res) {
		status = res.HTTPStatusCode()
		request = res.HTTPResponse().Header.Get("X-Amz-Request-Id")
	}
	if status == http.StatusOK && code == "" || status == http.StatusPartialContent {
		return "", "", 0, "" // the headers were good; what came after was not
	}
	return code, message, status, request
}

func describe(code, message string, status int, request string) string {
	var parts []string
	if code != "" && code != "UnknownError" {
		parts = append(parts, code)
	}
	if status != 0 {
		parts = append(parts, fmt.Sprintf("status %d", status))
	}
	if request != "" {
		parts = append(parts, "request "+request)
	}
	if len(parts) == 0 {
		return ""
	}
	if message != "" && message != code {
		return message + " (" + strings.Join(parts, ", ") + ")"
	}
	return strings.Join(parts, ", ")
}

// byCode sorts S3's answers. The code decides; the status where there is none.
func byCode(code string, status int) problem {
	switch {
	case throttles(code) || status == http.StatusTooManyRequests:
		return problem{kind: ErrThrottled, remedy: "spread the load or run fewer workers"}
	case code == "NoSuchBucket":
		return problem{kind: ErrNoBucket, tries: 1, remedy: "create it or correct bucket.name and bucket.endpoint"}
	case code == "PermanentRedirect", code == "AuthorizationHeaderMalformed", code == "IllegalLocationConstraintException", status == http.StatusMovedPermanently:
		return problem{kind: ErrNoBucket, tries: 1, remedy: "set bucket.region to the bucket's own"}
	case code == "InvalidBucketName":
		return problem{kind: ErrNoBucket, tries: 1, remedy: "correct bucket.name"}
	case code == "NoSuchUpload":
		return problem{kind: errNoUpload, tries: 1}
	case code == "RequestTimeTooSkewed", code == "RequestExpired":
		// The SDK learns the difference from the first refusal and signs the next try by it.
		return problem{kind: ErrClockSkew, tries: 2, remedy: "set this machine's clock (NTP)"}
	case code == "InvalidObjectState", code == "ObjectNotInActiveTierError":
		return problem{kind: ErrArchived, tries: 1, remedy: "restore it with `aws s3api restore-object` and take the lifecycle rule away that moved it"}
	case code == "BadDigest", code == "InvalidDigest", code == "XAmzContentSHA256Mismatch", code == "XAmzContentChecksumMismatch":
		return problem{kind: ErrCorrupt, tries: 2, remedy: "something changes bytes on the way to the store"}
	case code == "InvalidRange", status == http.StatusRequestedRangeNotSatisfiable:
		return problem{kind: ErrCorrupt, tries: 1, remedy: "the object is shorter than its record says; restore it from a backup or copy its slice again"}
	case code == "PreconditionFailed", status == http.StatusPreconditionFailed:
		return problem{kind: errPrecondition, tries: 1}
	case strings.HasPrefix(code, "KMS."):
		return problem{kind: ErrDenied, tries: 1, remedy: "check bucket.kms_key and the rights to use it"}
	case code == "ConditionalRequestConflict", code == "OperationAborted", code == "RequestTimeout", code == "InternalError",
		code == "ServiceUnavailable", code == "IncompleteBody":
		return problem{kind: ErrUnavailable}
	case code == "NotImplemented", status == http.StatusNotImplemented:
		return problem{kind: errRefused, tries: 1, remedy: "if the store refuses checksum headers, set bucket.compatible"}
	case status >= 500:
		return problem{kind: ErrUnavailable}
	case strings.HasPrefix(code, "NoSuch"):
		return problem{kind: ErrNotFound, tries: 1}
	case status == http.StatusNotFound: // of a HEAD, which has no body; or of a proxy or another program, which say nothing of the object
		return problem{kind: ErrUnavailable, tries: 2, remedy: "this is not how S3 answers: check bucket.endpoint and bucket.path_style"}
	case code == "InvalidAccessKeyId", code == "SignatureDoesNotMatch", code == "ExpiredToken", code == "InvalidToken", status == http.StatusUnauthorized:
		return problem{kind: ErrDenied, tries: 1, remedy: "check the credentials (AWS_ACCESS_KEY_ID, profile or role)"}
	case code == "AccessDenied", status == http.StatusForbidden:
		return problem{kind: ErrDenied, tries: 1, remedy: "grant s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload and s3:ListBucket on bucket and prefix " +
			"(without s3:ListBucket a missing object looks denied too)"}
	case status == http.StatusBadRequest:
		return problem{kind: errRefused, tries: 1, remedy: "if the store refuses checksum headers, set bucket.compatible"}
	}
	return problem{kind: errRefused, tries: 1}
}

// connection sorts errors without an answer: of the connection, or of a body
// that broke off or was not what its checksum says.
func connection(err error) problem {
	text := shorten(err)
	var unknownCA x509.UnknownAuthorityError
	var badCert *tls.CertificateVerificationError
	var badHost x509.HostnameError
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case strings.Contains(text, "checksum did not match"): // the SDK's type for it is internal
		return problem{kind: ErrCorrupt, code: "checksum", detail: text, tries: 2}
	case errors.As(err, &unknownCA), errors.As(err, &badCert), errors.As(err, &badHost):
		return problem{kind: ErrUnavailable, code: "certificate", detail: text, tries: 1, remedy: "name the authority's certificates in AWS_CA_BUNDLE"}
	case errors.As(err, &dns) && dns.IsNotFound:
		return problem{kind: ErrUnavailable, code: "unknown host", detail: text, tries: 2, remedy: "check bucket.endpoint and bucket.region, or set bucket.path_style"}
	case errors.As(err, &op) && op.Op == "dial":
		return problem{kind: ErrUnavailable, code: "connection", detail: text, lost: true, remedy: "see that the store runs, and check bucket.endpoint"}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return problem{kind: ErrUnavailable, code: "broken off", detail: text, lost: true}
	}
	return problem{kind: ErrUnavailable, code: "connection", detail: text, lost: true}
}

// shorten drops the SDK's and the transport's own words in front of an error.
func shorten(err error) string {
	var send *smithyhttp.RequestSendError
	if errors.As(err, &send) {
		err = send.Err
	}
	text := err.Error()
	if i := strings.LastIndex(text, "RequestID: , HostID: , "); i >= 0 {
		text = text[i+len("RequestID: , HostID: , "):]
	}
	return text
}

// problemError carries a problem that this package found itself.
type problemError struct{ problem }

func (e *problemError) Error() string { return e.kind.Error() + ": " + e.detail }

func corrupt(format string, args ...any) error {
	return &problemError{problem{kind: ErrCorrupt, code: "corrupt", detail: fmt.Sprintf(format, args...), tries: 2}}
}

func unavailable(format string, args ...any) error {
	return &problemError{problem{kind: ErrUnavailable, code: "bad answer", detail: fmt.Sprintf(format, args...)}}
}

// several is errors in one line.
type several []error

func (s several) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (s several) Unwrap() []error { return s }

// join is errors.Join in one line.
func join(errs ...error) error {
	var s several
	for _, err := range errs {
		if err != nil {
			s = append(s, err)
		}
	}
	switch len(s) {
	case 0:
		return nil
	case 1:
		return s[0]
	}
	return s
}
