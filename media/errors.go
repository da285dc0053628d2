package media

import "github.com/kitbackend/kit/capability"

// The refusals of media. A field that breaks its bounds is kit/invalid_request, a
// file above Config.MaxBytes is kit/body_too_large, and what storage refuses, such
// as storage/quota_exceeded, is passed on. A failed item carries one of
// media/unsupported_type, media/too_many_pixels, media/corrupt,
// media/moderation_rejected and media/processing_failed.
var (
	// ErrNotFound hides private items of others too.
	ErrNotFound        = capability.NewError(404, "media/not_found", "There is no such item.")
	ErrUnsupportedType = capability.NewError(415, "media/unsupported_type", "The file is not of a type that is taken here.")
	ErrTooManyPixels   = capability.NewError(422, "media/too_many_pixels", "The picture has more pixels than are taken here.")
	ErrCorrupt         = capability.NewError(422, "media/corrupt", "The file is damaged or not what it says.")
	// ErrNotUploaded is for Finalize before all bytes are there.
	ErrNotUploaded = capability.NewError(409, "media/not_uploaded", "The upload of this item is not complete.")
	// ErrNotReady is for what only a processed item has.
	ErrNotReady           = capability.NewError(409, "media/not_ready", "This item is not processed.")
	ErrModerationRejected = capability.NewError(422, "media/moderation_rejected", "The picture was found to break the rules.")
	// ErrProcessingFailed stands in failed items; Finalize tries again.
	ErrProcessingFailed = capability.NewError(500, "media/processing_failed", "The item could not be processed. Finalize it again.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrNotFound, ErrUnsupportedType, ErrTooManyPixels, ErrCorrupt, ErrNotUploaded, ErrNotReady,
		ErrModerationRejected, ErrProcessingFailed,
	}
}

// failure finds the refusal that a failed item carries.
func failure(code string) *capability.Error {
	for _, refusal := range refusals() {
		if refusal.Code == code {
			return refusal
		}
	}
	return ErrProcessingFailed
}
