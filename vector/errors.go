package vector

import "github.com/kitbackend/kit/capability"

// The refusals of vector. A document, query or filter that breaks its form or
// bounds is kit/invalid_request.
var (
	ErrIndexNotFound         = capability.NewError(404, "vector/index_not_found", "There is no such index.")
	ErrDocumentNotFound      = capability.NewError(404, "vector/document_not_found", "There is no such document.")
	ErrReadOnly              = capability.NewError(403, "vector/read_only", "This index is shared: only the application writes it.")
	ErrDimensionMismatch     = capability.NewError(422, "vector/dimension_mismatch", "The vector has not the dimensions of the index.")
	ErrModelMismatch         = capability.NewError(409, "vector/model_mismatch", "The documents here were embedded by another model.")
	ErrQuotaExceeded         = capability.NewError(413, "vector/quota_exceeded", "The index holds no more documents.")
	ErrEmbedderNotConfigured = capability.NewError(422, "vector/embedder_not_configured", "This index embeds no text. Send a vector.")
	ErrEmbeddingFailed       = capability.NewError(502, "vector/embedding_failed", "The embedding service did not do its work. Try again.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrIndexNotFound, ErrDocumentNotFound, ErrReadOnly, ErrDimensionMismatch, ErrModelMismatch,
		ErrQuotaExceeded, ErrEmbedderNotConfigured, ErrEmbeddingFailed,
	}
}

// Mismatch is the details of [ErrDimensionMismatch].
type Mismatch struct {
	Want int `json:"want"`
	Got  int `json:"got"`
}
