// Package bucket keeps objects in an S3 bucket, through aws-sdk-go-v2.
//
// It promises more than the SDK does:
//
//   - What was written is what was given: every object carries the SHA-256 of its
//     bytes in its metadata, the store gets a checksum to test them by, and each
//     further try sends the very same bytes.
//   - What was read is what was asked for: a ranged read that is not answered with
//     206, the exact Content-Range and all its bytes is an error, never a short or
//     another answer.
//   - A call ends with its context, also while a body stalls, and begins no try
//     that the context's deadline would not let begin. Without a deadline, a
//     connection on which nothing moves for Config.StallTimeout is given up.
//   - A put "only if it is not there" says ErrExists only when something else is
//     there: its own bytes, put by a try whose answer was lost, are a success.
//   - An upload in parts that does not end well leaves no parts.
//   - Errors of S3 are translated once, to the sentinels of this package, with the
//     key and, where it is not obvious, the remedy in their text. No type of the
//     SDK leaves the package.
//
// # What is not promised
//
//   - After an error other than ErrExists a put may or may not have taken place.
//   - Put without IfNoneMatch replaces what is there.
//   - List sees what S3 shows at the time of each page, not one moment's state.
//
// # Words
//
//   - key: an object's name without the configured prefix, which this package puts
//     in front and takes away again.
//   - try: one request of a call; a call makes several when the trouble may pass.
//   - compatible mode: for stores that refuse the checksum headers and trailers of
//     today's SDKs. Requests carry Content-MD5 instead.
//   - finding: something Check saw that is not right, with its remedy.
package bucket
