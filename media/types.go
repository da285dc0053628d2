package media

import (
	"context"
	"io"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage"
)

// Bounds of what comes from outside.
const (
	// MaxFilename bounds the name of a file, in bytes.
	MaxFilename = 255
	// MaxCaption bounds the caption of an item, in bytes.
	MaxCaption = 2000
	// MaxPending bounds the items of an owner that wait for their upload.
	MaxPending = 1000
	// MaxDistance bounds how different matches may look, in bits of 64.
	MaxDistance = 16
	// MaxMatches bounds the matches that one call returns.
	MaxMatches = 100
)

// Kind is what an item is, by its bytes.
type Kind string

// The kinds.
const (
	KindImage Kind = "image"
	KindVideo Kind = "video"
	KindAudio Kind = "audio"
	KindOther Kind = "other"
)

func (k Kind) known() bool {
	return k == KindImage || k == KindVideo || k == KindAudio || k == KindOther
}

// Status is how far an item is.
type Status string

// The statuses: pending until Finalize, processing until the job is done.
const (
	StatusPending    Status = "pending"
	StatusProcessing Status = "processing"
	StatusReady      Status = "ready"
	StatusFailed     Status = "failed"
)

// Upload describes an item to be.
type Upload struct {
	OwnerID string `json:"-"`
	// Filename is 1 to 255 bytes; what stands before its last slash is dropped.
	Filename string `json:"filename"`
	// ContentType is the claim of the uploader. Finalize finds the real type.
	ContentType string `json:"contentType,omitempty"`
	// Size in bytes, at most Config.MaxBytes.
	Size int64 `json:"size"`
	// SHA256 is the checksum of the bytes in hexadecimal, or "".
	SHA256 string `json:"sha256,omitempty"`
	// Kind refuses the upload at Finalize when the bytes are of another; "" takes any.
	Kind Kind `json:"kind,omitempty"`
	// Visibility is by default private. Every user may get a public item.
	Visibility storage.Visibility `json:"visibility,omitempty"`
	// Caption has at most 2,000 bytes.
	Caption string `json:"caption,omitempty"`
	// Metadata is up to 16 texts by name, 4 KiB in all.
	Metadata map[string]string `json:"metadata,omitempty"`
	// OnDuplicate says what happens when the owner has an item of this checksum:
	// "return", the default, returns it, "allow" uploads another.
	OnDuplicate string `json:"onDuplicate,omitempty"`
}

// Created is an item that waits for its upload, or one that was there.
type Created struct {
	Item Item `json:"item"`
	// Upload says where the bytes go; nil for a duplicate.
	Upload *storage.Plan `json:"upload"`
	// DuplicateOf is the id of the item that has these bytes, else nil.
	DuplicateOf *string `json:"duplicateOf"`
}

// Item is one media file.
type Item struct {
	ID      string `json:"id"`
	OwnerID string `json:"-"`
	// Kind is found in the bytes; before Finalize it is what was declared.
	Kind       Kind               `json:"kind"`
	Status     Status             `json:"status"`
	Visibility storage.Visibility `json:"visibility"`
	Filename   string             `json:"filename"`
	// ContentType is found in the bytes; before Finalize it is what was declared.
	ContentType string `json:"contentType"`
	Size        int64  `json:"size"`
	// SHA256 is the checksum of what is kept, and SourceSHA256 of what was
	// uploaded; they differ where metadata was removed. nil before processing.
	SHA256       *string `json:"sha256"`
	SourceSHA256 *string `json:"sourceSha256"`
	// Width and Height are of the upright picture, in pixels, 0 where unknown.
	Width  int `json:"width"`
	Height int `json:"height"`
	Facts
	// PHash is 64 bits of how the picture looks, in hexadecimal; nil for none.
	PHash *string `json:"phash"`
	// Original reads the file, of a ready item.
	Original *storage.Link `json:"original"`
	// Derivatives are what was made of it.
	Derivatives []Derivative `json:"derivatives"`
	// Error says why a failed item failed.
	Error     *Failure          `json:"error"`
	ObjectID  string            `json:"objectId"`
	Caption   string            `json:"caption"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt capability.Time   `json:"createdAt"`
	UpdatedAt capability.Time   `json:"updatedAt"`
	ReadyAt   *capability.Time  `json:"readyAt"`

	source, sum string // SourceSHA256 and SHA256 as stored
	wanted      Kind   // the kind that the uploader asked for
	phash       uint64
	failure     string
	attempts    int64
	recipe      string // what the derivatives were made by
}

// Facts are what was found in the bytes.
type Facts struct {
	DurationMs int64   `json:"durationMs"`
	FrameRate  float64 `json:"frameRate"`
	// Codec is the four letters of the format of a film or sound.
	Codec    string `json:"codec"`
	HasAudio bool   `json:"hasAudio"`
	// Orientation is the EXIF orientation of the original, 1 to 8; derivatives
	// stand upright. 0 where there is none.
	Orientation int `json:"orientation"`
	// TakenAt is the time in the metadata, nil where there is none.
	TakenAt *capability.Time `json:"takenAt"`
	// Location is nil where there is none and where it is removed.
	Location *Location `json:"location"`
	// BlurHash is a placeholder in the BlurHash format, "" for none.
	BlurHash string `json:"blurhash"`
	// AI is nil without an [Analyzer].
	AI *Analysis `json:"ai"`
}

// Location is a place in degrees.
type Location struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

// Derivative is a smaller picture made of an item, or the MP4 of a film.
type Derivative struct {
	Name        string          `json:"name"`
	ContentType string          `json:"contentType"`
	Width       int             `json:"width"`
	Height      int             `json:"height"`
	Size        int64           `json:"size"`
	URL         string          `json:"url"`
	ExpiresAt   capability.Time `json:"expiresAt"`

	objectID string
}

// Failure says why an item failed: a code of media and a sentence.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Analyzer describes pictures, in most cases by a model. It is called by the job
// of an item, outside of transactions, possibly more than once.
type Analyzer interface {
	// Analyze reads the largest derivative. Under Config.BlockFlagged its error
	// keeps the item from being ready; without it the item has no analysis.
	Analyze(ctx context.Context, item Item, picture io.Reader) (Analysis, error)
}

// Analysis is what an [Analyzer] found.
type Analysis struct {
	Caption    string     `json:"caption"`
	Labels     []Label    `json:"labels"`
	Moderation Moderation `json:"moderation"`
	// Model names what found it.
	Model string `json:"model"`
}

// Label is something in a picture.
type Label struct {
	Name  string  `json:"name"`
	Score float64 `json:"score"`
}

// Moderation says whether a picture should not be shown, and why.
type Moderation struct {
	Flagged    bool     `json:"flagged"`
	Categories []string `json:"categories"`
}

// Filter selects items of one owner.
type Filter struct {
	OwnerID string
	// Kind and Status are "" for all.
	Kind   Kind
	Status Status
}

// Look says what duplicates are looked for: exactly one of ID, SHA256 and PHash.
type Look struct {
	// ID is an item of the owner's; it is not among its matches.
	ID     string `json:"id,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// PHash is 16 hexadecimal digits, as items have it.
	PHash string `json:"phash,omitempty"`
	// MaxDistance is 0 to 16 bits; nil means 8.
	MaxDistance *int `json:"maxDistance,omitempty"`
	// Limit is 1 to 100; 0 means 20.
	Limit int `json:"limit,omitempty"`
}

// Matches are the items found, those most alike first.
type Matches struct {
	Matches []Match `json:"matches"`
}

// Match is an item that looks alike.
type Match struct {
	Item Item `json:"item"`
	// Distance is in bits of 64; Exact says that the bytes are the same.
	Distance int  `json:"distance"`
	Exact    bool `json:"exact"`
}

// Choices lists the values, for documents.
func (Kind) Choices() []string {
	return []string{string(KindImage), string(KindVideo), string(KindAudio), string(KindOther)}
}

// Choices lists the values, for documents.
func (Status) Choices() []string {
	return []string{string(StatusPending), string(StatusProcessing), string(StatusReady), string(StatusFailed)}
}
