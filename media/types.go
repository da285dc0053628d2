package media

import (
	"context"
	"io"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage"
)

// Bounds of input.
const (
	// MaxFilename bounds the name of a file, in bytes.
	MaxFilename = 255
	// MaxCaption bounds the caption of an item, in bytes.
	MaxCaption = 2000
	// MaxPending bounds the items of an owner whose upload is not complete.
	MaxPending = 1000
	// MaxDistance bounds the distance of matches, in bits of 64.
	MaxDistance = 16
	// MaxMatches bounds the matches of one call.
	MaxMatches = 100
)

// Kind is the kind of an item, by its bytes.
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

// OnDuplicate is what happens to an upload whose bytes the owner has.
type OnDuplicate string

// What can happen.
const (
	// DuplicateReturn returns the existing item.
	DuplicateReturn OnDuplicate = "return"
	// DuplicateAllow creates another.
	DuplicateAllow OnDuplicate = "allow"
)

// Status is the status of an item.
type Status string

// The statuses: pending until Finalize, processing until the job is done.
const (
	StatusPending    Status = "pending"
	StatusProcessing Status = "processing"
	StatusReady      Status = "ready"
	StatusFailed     Status = "failed"
)

// Upload describes an item to create.
type Upload struct {
	OwnerID string `json:"-"`
	// Filename is 1 to 255 bytes; everything up to its last slash is removed.
	Filename string `json:"filename"`
	// ContentType is the type that the uploader declares. Finalize detects the real type.
	ContentType string `json:"contentType,omitempty"`
	// Size in bytes, at most Config.MaxBytes.
	Size int64 `json:"size"`
	// SHA256 is the checksum of the bytes in hexadecimal, or "".
	SHA256 string `json:"sha256,omitempty"`
	// Kind is the only kind that Finalize accepts; "" accepts any.
	Kind Kind `json:"kind,omitempty"`
	// Visibility is by default private. Every user can read a public item.
	Visibility storage.Visibility `json:"visibility,omitempty"`
	// Caption has at most 2,000 bytes.
	Caption string `json:"caption,omitempty"`
	// Metadata is up to 16 texts by name, 4 KiB in all.
	Metadata map[string]string `json:"metadata,omitempty"`
	// OnDuplicate is what happens if the owner has an item with this checksum, by default
	// [DuplicateReturn].
	OnDuplicate OnDuplicate `json:"onDuplicate,omitempty"`
}

// Created is a new item, or the existing duplicate.
type Created struct {
	Item Item `json:"item"`
	// Upload describes where a client sends the bytes; nil for a duplicate.
	Upload *storage.Plan `json:"upload"`
	// DuplicateOf is the ID of the item with the same bytes, else nil.
	DuplicateOf *string `json:"duplicateOf"`
}

// Item is one media file.
type Item struct {
	ID      string `json:"id"`
	OwnerID string `json:"-"`
	// Kind is detected from the bytes; before Finalize it is the declared one.
	Kind       Kind               `json:"kind"`
	Status     Status             `json:"status"`
	Visibility storage.Visibility `json:"visibility"`
	Filename   string             `json:"filename"`
	// ContentType is detected from the bytes; before Finalize it is the declared one.
	ContentType string `json:"contentType"`
	Size        int64  `json:"size"`
	// SHA256 is the checksum of the stored file, and SourceSHA256 that of the upload; they differ
	// if metadata was removed. nil before processing.
	SHA256       *string `json:"sha256"`
	SourceSHA256 *string `json:"sourceSha256"`
	// Width and Height are those of the upright picture, in pixels, 0 if unknown.
	Width  int `json:"width"`
	Height int `json:"height"`
	Facts
	// PHash is the perceptual hash of the picture, 64 bits in hexadecimal; nil if there is none.
	PHash *string `json:"phash"`
	// Original is the signed URL of the file of a ready item.
	Original *storage.Link `json:"original"`
	// Derivatives are the files made from it.
	Derivatives []Derivative `json:"derivatives"`
	// Error is why a failed item failed.
	Error     *Failure          `json:"error"`
	ObjectID  string            `json:"objectId"`
	Caption   string            `json:"caption"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt capability.Time   `json:"createdAt"`
	UpdatedAt capability.Time   `json:"updatedAt"`
	ReadyAt   *capability.Time  `json:"readyAt"`

	source, sum string // SourceSHA256 and SHA256 as stored
	wanted      Kind   // the kind that the uploader requested
	phash       uint64
	failure     string
	attempts    int64
	recipe      string // identifies how the derivatives were made
}

// Facts are the properties detected in the bytes.
type Facts struct {
	DurationMs int64   `json:"durationMs"`
	FrameRate  float64 `json:"frameRate"`
	// Codec is the four-letter code of the format of a video or audio.
	Codec    string `json:"codec"`
	HasAudio bool   `json:"hasAudio"`
	// Orientation is the EXIF orientation of the original, 1 to 8, 0 if there is none; derivatives
	// are upright.
	Orientation int `json:"orientation"`
	// TakenAt is the time in the metadata, nil if there is none.
	TakenAt *capability.Time `json:"takenAt"`
	// Location is nil if there is none, or if it is removed.
	Location *Location `json:"location"`
	// BlurHash is a placeholder in the BlurHash format, "" if there is none.
	BlurHash string `json:"blurhash"`
	// AI is nil without an [Analyzer].
	AI *Analysis `json:"ai"`
}

// Location is a place in degrees.
type Location struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

// Derivative is a smaller picture made from an item, or the MP4 of a video.
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

// Failure is why an item failed: a code of media and a sentence.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Analyzer describes pictures, usually by a model. It is called by the job of an item, outside of
// transactions, possibly more than once.
type Analyzer interface {
	// Analyze analyzes the largest derivative. If Config.BlockFlagged is set, an error prevents the
	// item from becoming ready; otherwise the item has no analysis.
	Analyze(ctx context.Context, item Item, picture io.Reader) (Analysis, error)
}

// Analysis is the result of an [Analyzer].
type Analysis struct {
	Caption    string     `json:"caption"`
	Labels     []Label    `json:"labels"`
	Moderation Moderation `json:"moderation"`
	// Model is the name of the model.
	Model string `json:"model"`
}

// Label is something found in a picture.
type Label struct {
	Name  string  `json:"name"`
	Score float64 `json:"score"`
}

// Moderation is whether a picture should not be shown, and why.
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

// Look describes what to find duplicates of: exactly one of ID, SHA256 and PHash.
type Look struct {
	// ID is an item of the owner; it is not among its matches.
	ID     string `json:"id,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// PHash is 16 hexadecimal digits, as in Item.
	PHash string `json:"phash,omitempty"`
	// MaxDistance is 0 to 16 bits; nil means 8.
	MaxDistance *int `json:"maxDistance,omitempty"`
	// Limit is 1 to 100; 0 means 20.
	Limit int `json:"limit,omitempty"`
}

// Matches are the items found, the most similar first.
type Matches struct {
	Matches []Match `json:"matches"`
}

// Match is a similar item.
type Match struct {
	Item Item `json:"item"`
	// Distance is in bits of 64; Exact reports that the bytes are the same.
	Distance int  `json:"distance"`
	Exact    bool `json:"exact"`
}

// Choices lists the values, for API documents.
func (Kind) Choices() []string {
	return []string{string(KindImage), string(KindVideo), string(KindAudio), string(KindOther)}
}

// Choices lists the values, for API documents.
func (OnDuplicate) Choices() []string {
	return []string{string(DuplicateReturn), string(DuplicateAllow)}
}

// Choices lists the values, for API documents.
func (Status) Choices() []string {
	return []string{string(StatusPending), string(StatusProcessing), string(StatusReady), string(StatusFailed)}
}
