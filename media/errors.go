package media

import "github.com/kitbackend/kit/capability"

// The refusals of media. A field that breaks its bounds is kit/invalid_request, a file above
// Config.MaxBytes is kit/body_too_large, and refusals of storage, such as storage/quota_exceeded,
// are passed on. A failed item has the code media/unsupported_type, media/too_many_pixels,
// media/corrupt, media/moderation_rejected or media/processing_failed.
var (
	// ErrNotFound is also returned for private items of others.
	ErrNotFound        = capability.NewError(404, "media/not_found", "There is no such item.")
	ErrUnsupportedType = capability.NewError(415, "media/unsupported_type", "The file is not of a type that is taken here.")
	ErrTooManyPixels   = capability.NewError(422, "media/too_many_pixels", "The picture has more pixels than are taken here.")
	ErrCorrupt         = capability.NewError(422, "media/corrupt", "The file is damaged or not what it says.")
	// ErrNotUploaded is returned by Finalize before all bytes are uploaded.
	ErrNotUploaded = capability.NewError(409, "media/not_uploaded", "The upload of this item is not complete.")
	// ErrNotReady is returned for operations that need a processed item.
	ErrNotReady           = capability.NewError(409, "media/not_ready", "This item is not processed.")
	ErrModerationRejected = capability.NewError(422, "media/moderation_rejected", "The picture was found to break the rules.")
	// ErrProcessingFailed is the error of items that Finalize processes again.
	ErrProcessingFailed = capability.NewError(500, "media/processing_failed", "The item could not be processed. Finalize it again.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrNotFound, ErrUnsupportedType, ErrTooManyPixels, ErrCorrupt, ErrNotUploaded, ErrNotReady,
		ErrModerationRejected, ErrProcessingFailed,
	}
}

// failure returns the refusal with the code of a failed item.
func failure(code string) *capability.Error {
	for _, refusal := range refusals() {
		if refusal.Code == code {
			return refusal
		}
	}
	return ErrProcessingFailed
}
