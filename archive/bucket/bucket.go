package bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
)

// MetaSHA256 is the metadata in which every object carries the SHA-256 of its
// bytes, in hexadecimal.
const MetaSHA256 = "sha256"

// Bucket is a bucket and a prefix in it. It is safe for concurrent use.
type Bucket struct {
	cfg  Config
	s3   *s3.Client
	http *http.Client
	log  *slog.Logger
}

// Info says what is known of an object. List knows no metadata.
type Info struct {
	Key          string
	Size         int64
	Modified     time.Time
	Metadata     map[string]string
	StorageClass string
}

// Open makes a client for a bucket. It asks nothing of the bucket: see Check.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Bucket, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// A BuildableClient, for when AWS_CA_BUNDLE is set the SDK adds the certificates
	// to the client's transport and refuses clients on which it cannot.
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 512, 256 // one host takes all requests
	})
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithLogger(logging.Nop{}),
	}
	if cfg.Region != "" {
		load = append(load, config.WithRegion(cfg.Region))
	}
	if cfg.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(cfg.Credentials))
	}
	ac, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if ac.Region == "" {
		return nil, errors.New("bucket.region is not set, nor is AWS_REGION")
	}
	b := &Bucket{cfg: cfg, log: log}
	// The SDK's client keeps its connections where nobody can close them: take its
	// transport, which has the certificates by now, into one of our own.
	loaded, ok := ac.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil, fmt.Errorf("load the AWS configuration: it gives a client of type %T", ac.HTTPClient)
	}
	b.http = &http.Client{Transport: loaded.GetTransport(), CheckRedirect: redirect}
	b.s3 = s3.NewFromConfig(ac, func(o *s3.Options) {
		o.HTTPClient = b.http
		o.UsePathStyle = cfg.PathStyle
		if cfg.Endpoint != "" {
			o.BaseEndpoint = aws.String(cfg.Endpoint)
		}
		// This package tries again itself: the SDK's retries know no deadline, and
		// none for a body that breaks off.
		o.Retryer = aws.NopRetryer{}
		o.DisableLogOutputChecksumValidationSkipped = true
		// Said here and not left to the loader, whose environment may say otherwise.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenSupported
		if cfg.Compatible {
			o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		}
	})
	return b, nil
}

// Close closes the idle connections. Calls that are under way are not hurt.
func (b *Bucket) Close() error {
	b.http.CloseIdleConnections()
	return nil
}

// redirect follows only the redirects that repeat the request as it is, as the
// SDK's own client does; others (a bucket of another region) are answers.
func redirect(r *http.Request, via []*http.Request) error {
	if len(via) > 3 {
		return errors.New("more than 3 redirects")
	}
	switch r.Response.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return nil
	}
	return http.ErrUseLastResponse
}

// full puts the prefix in front of a key.
func (b *Bucket) full(key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	full := b.prefix() + key
	if len(full) > maxKey {
		return "", fmt.Errorf("key %q: longer than %d bytes with its prefix %s", key, maxKey, b.cfg.Prefix)
	}
	return full, nil
}

// prefix is what all keys begin with.
func (b *Bucket) prefix() string {
	if b.cfg.Prefix == "" {
		return ""
	}
	return b.cfg.Prefix + "/"
}

// short takes the prefix from a full key.
func (b *Bucket) short(full string) (string, bool) { return strings.CutPrefix(full, b.prefix()) }

// url names an object, or a prefix, in texts.
func (b *Bucket) url(full string) string { return "s3://" + b.cfg.Name + "/" + full }
