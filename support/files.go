package support

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
)

// linkLifetime is how long the link to an attachment works.
const linkLifetime = 5 * time.Minute

// Files is what support needs of a store of files; the zero value keeps none.
type Files struct {
	// Keep stores the attachment of a mail and returns the object's id. It is
	// called outside of transactions; what becomes of no message is removed.
	Keep func(ctx context.Context, name, contentType string, content []byte) (objectID string, err error)
	// Owned returns an object that a user has uploaded; ok is false when there
	// is none of that user's.
	Owned func(ctx context.Context, userID, objectID string) (file File, ok bool, err error)
	// Link returns an address that reads the object for a time.
	Link func(ctx context.Context, objectID string, lifetime time.Duration) (url string, err error)
	// Remove deletes an object that Keep stored; one that is gone is no error.
	Remove func(ctx context.Context, objectID string) error
}

// File is what is known of an object.
type File struct {
	Name, Type string
	Size       int64
}

// userFiles looks up what a user attached.
func (s *Support) userFiles(ctx context.Context, f Feedback) ([]Attachment, error) {
	if len(f.Attachments) > maxUserFiles {
		return nil, capability.ErrInvalidRequest.Saying("At most %d attachments.", maxUserFiles)
	}
	files := make([]Attachment, 0, len(f.Attachments))
	for _, objectID := range f.Attachments {
		if err := capability.CheckText("attachments", objectID, 1, maxObjectID); err != nil {
			return nil, err
		}
		if s.peers.Files.Owned == nil {
			return nil, capability.ErrInvalidRequest.Saying("Attachments need storage, which is not composed.")
		}
		file, ok, err := s.peers.Files.Owned(ctx, f.UserID, objectID)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, capability.ErrInvalidRequest.Saying("An attachment is not an object of yours.")
		}
		files = append(files, Attachment{Name: fileName(file.Name), Type: mediaType(file.Type), Size: file.Size, objectID: objectID})
	}
	return files, nil
}

// linked fills in the links of attachments. One that cannot be made is left out:
// the message is worth more than its file.
func (s *Support) linked(ctx context.Context, a Attachment) Attachment {
	if a.objectID == "" || s.peers.Files.Link == nil {
		return a
	}
	if url, err := s.peers.Files.Link(ctx, a.objectID, linkLifetime); err == nil {
		a.URL = &url
	}
	return a
}

// fileName makes a name that is safe on every system out of one from outside.
func fileName(name string) string {
	name = path.Base(strings.ReplaceAll(line(name, 4*maxFileName), `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`<>:"|?*/`, r) {
			return '_'
		}
		return r
	}, name)
	name = clip(strings.Trim(name, ". "), maxFileName)
	if name == "" {
		return "attachment"
	}
	return name
}

const maxFileName = 200

// mediaType keeps the type of a file where it has the form of one.
func mediaType(text string) string {
	text = strings.ToLower(line(text, 100))
	kind, sub, ok := strings.Cut(text, "/")
	if !ok || kind == "" || sub == "" || strings.ContainsAny(text, " ;\"<>()") {
		return "application/octet-stream"
	}
	return text
}
