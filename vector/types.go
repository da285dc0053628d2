package vector

import "github.com/kitbackend/kit/capability"

// Bounds of what callers give.
const (
	MaxBatch    = 100      // documents of an upsert
	MaxText     = 32 << 10 // bytes of a document's text
	MaxQuery    = 8 << 10  // bytes of a query's text
	MaxMetadata = 8 << 10  // bytes of JSON
	MaxKeys     = 64       // of a document's metadata
	MaxTopK     = 100
	maxModel    = 128
)

// Space is one partition of an index: that of an owner, or, with an empty
// OwnerID, the only one of a shared index.
type Space struct {
	Index   string
	OwnerID string
}

// Document is what is put into an index: a text to embed, or a vector, or a
// vector with the text it stands for.
type Document struct {
	// ID is 1 to 128 ASCII letters, digits, _ . : and -; empty draws one.
	ID string `json:"id,omitempty"`
	// Text is at most 32 KiB. It is what text and hybrid queries search.
	Text string `json:"text,omitempty"`
	// Vector has the dimensions of the index, all finite.
	Vector []float32 `json:"vector,omitempty"`
	// Model says which model made Vector, at most 128 bytes; empty is a model
	// too. Documents of one partition have the same.
	Model string `json:"model,omitempty"`
	// Metadata is at most 8 KiB of JSON and 64 keys. Numbers are float64.
	Metadata map[string]any `json:"metadata,omitempty"`
}

// Written says what became of one document of an upsert.
type Written struct {
	ID        string          `json:"id"`
	Created   bool            `json:"created"`
	UpdatedAt capability.Time `json:"updatedAt"`
}

// Usage counts what embedding took.
type Usage struct {
	// EmbeddedTokens is as the embedding service counts; 0 where it does not.
	EmbeddedTokens int64 `json:"embeddedTokens"`
}

// Upserted is the outcome of an upsert, in the order of the documents.
type Upserted struct {
	Items []Written `json:"items"`
	Usage Usage     `json:"usage"`
}

// Stored is a document as it is kept.
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

// Mode says what a query compares.
type Mode string

// The modes. The zero value is vector.
const (
	ModeVector Mode = "vector" // vectors
	ModeText   Mode = "text"   // words
	ModeHybrid Mode = "hybrid" // both, fused by their ranks
)

// Precision says how sure a result is.
type Precision string

// The precisions. The zero value is the default: at least 995 of 1,000 true
// neighbours are found.
const (
	PrecisionDefault Precision = "default"
	PrecisionExact   Precision = "exact" // every document is compared
)

// Query asks for the documents nearest to one of Text, Vector and DocumentID.
type Query struct {
	Text   string    `json:"text,omitempty"`
	Vector []float32 `json:"vector,omitempty"`
	// DocumentID asks for the neighbours of a document, itself left out.
	DocumentID string `json:"documentId,omitempty"`
	// TopK is 1 to 100, by default 10.
	TopK   int    `json:"topK,omitempty"`
	Filter Filter `json:"filter,omitempty"`
	// Mode is vector by default. Text and hybrid need Text; hybrid takes a
	// Vector along with it in place of embedding it.
	Mode Mode `json:"mode,omitempty"`
	// MinScore leaves out what scores lower.
	MinScore *float64 `json:"minScore,omitempty"`
	// Include lists what a match carries: metadata, text, vector; nil is
	// metadata alone.
	Include   []string  `json:"include,omitempty"`
	Precision Precision `json:"precision,omitempty"`
}

// Match is a document that was found.
type Match struct {
	ID string `json:"id"`
	// Score is higher for better matches: of the metric, or in text and hybrid
	// mode the sum of 1/(60+rank) over the lists the document is in.
	Score float64 `json:"score"`
	// Distance is 1-cosine, minus the inner product, or the Euclidean distance;
	// nil for a match by words alone.
	Distance *float64       `json:"distance"`
	Metadata map[string]any `json:"metadata,omitempty"`
	Text     string         `json:"text,omitempty"`
	Vector   []float32      `json:"vector,omitempty"`
}

// Result is what a query found, best first, ties by id.
type Result struct {
	Items []Match `json:"items"`
	Mode  Mode    `json:"mode"`
	// Exact reports that every document was compared. A filter is asked about the
	// best 100,000 documents that have a word of the query, unless it keeps enough
	// before.
	Exact  bool  `json:"exact"`
	TookMS int64 `json:"tookMs"`
}

// Choices lists the values, for documents.
func (Mode) Choices() []string {
	return []string{string(ModeVector), string(ModeText), string(ModeHybrid)}
}

// Choices lists the values, for documents.
func (Precision) Choices() []string {
	return []string{string(PrecisionDefault), string(PrecisionExact)}
}
