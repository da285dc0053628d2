package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage/bucket"
)

// The refusals of storage. A path, type, checksum or other field that breaks its
// bounds is kit/invalid_request; an object above Config.MaxObjectBytes is
// kit/body_too_large and a type that Config.AllowedTypes does not name is
// kit/unsupported_media_type.
var (
	// ErrNotFound is also returned for private objects of others.
	ErrNotFound = capability.NewError(404, "storage/not_found", "There is no such object.")
	// ErrForbidden is returned only for public objects, whose existence is no secret.
	ErrForbidden = capability.NewError(403, "storage/forbidden", "This object belongs to somebody else.")
	// ErrQuotaExceeded has an [Excess] in its details.
	ErrQuotaExceeded = capability.NewError(413, "storage/quota_exceeded", "The upload would exceed the space of its owner.")
	// ErrUploadIncomplete is returned for every use of an object whose upload is not complete.
	ErrUploadIncomplete = capability.NewError(409, "storage/upload_incomplete", "The upload is not complete.")
	// ErrMultipartFailed leaves the upload unchanged.
	ErrMultipartFailed = capability.NewError(500, "storage/multipart_failed", "The parts cannot make the object.")
	ErrShareExpired    = capability.NewError(410, "storage/share_expired", "This share has expired.")
	// ErrAlreadyStored is returned only by signed URLs: the bytes were stored by an earlier
	// request, and only complete is left to do.
	ErrAlreadyStored = capability.NewError(412, "storage/already_stored", "The bytes of this upload are stored already.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrNotFound, ErrForbidden, ErrQuotaExceeded, ErrUploadIncomplete, ErrMultipartFailed, ErrShareExpired, ErrAlreadyStored,
	}
}

// Excess is the details of [ErrQuotaExceeded]: the bytes requested and available.
type Excess struct {
	Requested int64 `json:"requested"`
	Available int64 `json:"available"`
}

// errInTransaction is returned because the bytes of an object cannot wait for a transaction.
var errInTransaction = errors.New("storage: bytes do not move inside a transaction; call Stage before it and Commit inside")

// unavailable returns the refusal for a failure of the bucket.
func unavailable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return capability.ErrUnavailable.Saying("The object store does not respond.").Because(err)
}

// signedRefusal returns the refusal for an error of the bucket, for the client of a signed URL.
func signedRefusal(err error) error {
	switch {
	case errors.Is(err, bucket.ErrDenied):
		return capability.ErrInvalidSignature.Saying("The signed address was changed, is over, or is for another request.").Because(err)
	case errors.Is(err, bucket.ErrLength), errors.Is(err, bucket.ErrChecksum):
		return capability.ErrInvalidRequest.Saying("The body is not of the signed length or checksum.").Because(err)
	case errors.Is(err, bucket.ErrExists):
		return ErrAlreadyStored
	case errors.Is(err, bucket.ErrNotFound), errors.Is(err, bucket.ErrNoUpload):
		return ErrNotFound.Because(err)
	case errors.As(err, new(*fs.PathError)), errors.As(err, new(*os.LinkError)): // such as a full disk
		return unavailable(err)
	default:
		return err
	}
}
