package vector

import "github.com/kitbackend/kit/capability"

// Bounds of input.
const (
	MaxBatch    = 100      // documents of an upsert
	MaxText     = 32 << 10 // bytes of a document's text
	MaxQuery    = 8 << 10  // bytes of a query's text
	MaxMetadata = 8 << 10  // bytes of JSON
	MaxKeys     = 64       // of a document's metadata
	MaxTopK     = 100
	maxModel    = 128
)

// Space is one partition of an index: that of an owner, or, with an empty OwnerID, the only one of
// a shared index.
type Space struct {
	Index   string
	OwnerID string
}

// Document is a document to store in an index: a text to embed, or a vector, or a vector with its
// text.
type Document struct {
	// ID is 1 to 128 ASCII letters, digits, _ . : and -; if empty, a new one is generated.
	ID string `json:"id,omitempty"`
	// Text is at most 32 KiB. Text and hybrid queries search it.
	Text string `json:"text,omitempty"`
	// Vector has the dimensions of the index; all components are finite.
	Vector []float32 `json:"vector,omitempty"`
	// Model is the model that made Vector, at most 128 bytes; empty is a model too. All documents
	// of a partition have the same model.
	Model string `json:"model,omitempty"`
	// Metadata is at most 8 KiB of JSON and 64 keys. Numbers are float64.
	Metadata map[string]any `json:"metadata,omitempty"`
}

// Written is the result for one document of an upsert.
type Written struct {
	ID        string          `json:"id"`
	Created   bool            `json:"created"`
	UpdatedAt capability.Time `json:"updatedAt"`
}

// Usage is the usage of the embedding service.
type Usage struct {
	// EmbeddedTokens is the count of the embedding service; 0 if it does not count.
	EmbeddedTokens int64 `json:"embeddedTokens"`
}

// Upserted is the result of an upsert, in the order of the documents.
type Upserted struct {
	Items []Written `json:"items"`
	Usage Usage     `json:"usage"`
}

// Stored is a stored document.
type Stored struct {
	ID         string          `json:"id"`
	Text       string          `json:"text"`
	Metadata   map[string]any  `json:"metadata"`
	Dimensions int             `json:"dimensions"`
	Model      string          `json:"model"`
	CreatedAt  capability.Time `json:"createdAt"`
	UpdatedAt  capability.Time `json:"updatedAt"`
	Vector     []float32       `json:"vector,omitempty"`
}

// Mode is what a query compares.
type Mode string

// The modes. The zero value is vector.
const (
	ModeVector Mode = "vector" // vectors
	ModeText   Mode = "text"   // words
	ModeHybrid Mode = "hybrid" // both, fused by their ranks
)

// Precision is the recall of a query.
type Precision string

// The precisions. The zero value is the default: at least 995 of 1,000 true neighbors are found.
const (
	PrecisionDefault Precision = "default"
	PrecisionExact   Precision = "exact" // every document is compared
)

// Query describes a search for the documents nearest to one of Text, Vector and DocumentID.
type Query struct {
	Text   string    `json:"text,omitempty"`
	Vector []float32 `json:"vector,omitempty"`
	// DocumentID searches for the neighbors of a document, without the document itself.
	DocumentID string `json:"documentId,omitempty"`
	// TopK is 1 to 100, by default 10.
	TopK   int    `json:"topK,omitempty"`
	Filter Filter `json:"filter,omitempty"`
	// Mode is vector by default. Text and hybrid need Text; hybrid uses Vector, if given, instead
	// of embedding Text.
	Mode Mode `json:"mode,omitempty"`
	// MinScore excludes matches with a lower score.
	MinScore *float64 `json:"minScore,omitempty"`
	// Include lists the fields of a match: metadata, text, vector; nil means only metadata.
	Include   []string  `json:"include,omitempty"`
	Precision Precision `json:"precision,omitempty"`
}

// Match is a document of a result.
type Match struct {
	ID string `json:"id"`
	// Score is higher for better matches: the score of the metric, or in text and hybrid mode the
	// sum of 1/(60+rank) over the lists that contain the document.
	Score float64 `json:"score"`
	// Distance is 1-cosine, minus the inner product, or the Euclidean distance; nil for a match
	// only by words.
	Distance *float64       `json:"distance"`
	Metadata map[string]any `json:"metadata,omitempty"`
	Text     string         `json:"text,omitempty"`
	Vector   []float32      `json:"vector,omitempty"`
}

// Result is the result of a query, best first, ties by ID.
type Result struct {
	Items []Match `json:"items"`
	Mode  Mode    `json:"mode"`
	// Exact reports that every document was compared. A filter is applied to the best 100,000
	// documents that have a word of the query, or fewer if enough match before.
	Exact  bool  `json:"exact"`
	TookMS int64 `json:"tookMs"`
}

// Choices lists the values, for API documents.
func (Mode) Choices() []string {
	return []string{string(ModeVector), string(ModeText), string(ModeHybrid)}
}

// Choices lists the values, for API documents.
func (Precision) Choices() []string {
	return []string{string(PrecisionDefault), string(PrecisionExact)}
}
