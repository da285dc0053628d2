package support

import (
	"context"
	"mime"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/optional"
)

// linkLifetime is how long the link to an attachment works.
const linkLifetime = 5 * time.Minute

// Files is what support needs of a store of files; the zero value keeps none.
type Files struct {
	// Keep stores the attachment of a mail and returns the object's id. It is
	// called outside of transactions, and the object is to end by itself unless
	// Commit is called. A refusal, with a status below 500, leaves the file out of
	// the message.
	Keep func(ctx context.Context, name, contentType string, content []byte) (objectID string, err error)
	// Commit makes an object that Keep stored last, in the transaction that writes
	// its message; it may be called again when that runs again.
	Commit func(ctx context.Context, objectID string) error
	// Owned returns an object that a user has uploaded; ok is false when there
	// is none of that user's.
	Owned func(ctx context.Context, userID, objectID string) (file File, ok bool, err error)
	// Links returns addresses that read objects for a time, by object id; of one
	// that is gone there is none.
	Links func(ctx context.Context, objectIDs []string, lifetime time.Duration) (urls map[string]string, err error)
	// Remove deletes an object that Keep stored. One that is gone, and a user's
	// own, which are not support's to delete, are no error.
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

// link fills in the links of attachments. Where they cannot be made they are
// left out: the messages are worth more than their files.
func (s *Support) link(ctx context.Context, files []attachmentRow) {
	var ids []string
	for _, a := range files {
		if a.objectID != "" {
			ids = append(ids, a.objectID)
		}
	}
	if len(ids) == 0 || s.peers.Files.Links == nil {
		return
	}
	urls, err := s.peers.Files.Links(ctx, ids, linkLifetime)
	if err != nil {
		s.host.Log.Warn("support: attachments cannot be linked", "error", err)
	}
	for i, a := range files {
		files[i].URL = optional.Text(urls[a.objectID])
	}
}

// fileName makes a name that is safe on every system out of one from outside.
func fileName(name string) string {
	name = path.Base(strings.ReplaceAll(line(name, 4*maxFileName), `\`, "/"))
	name = strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(`<>:"|?*/`, r):
			return '_'
		case unicode.Is(unicode.Noncharacter_Code_Point, r): // which storage refuses
			return -1
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
	kind, _, err := mime.ParseMediaType(line(text, 100))
	if err != nil || !strings.Contains(kind, "/") {
		return "application/octet-stream"
	}
	return kind
}
