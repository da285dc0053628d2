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

// linkLifetime is how long the link to an attachment is valid.
const linkLifetime = 5 * time.Minute

// Files is the file storage that support uses; with the zero value no files are stored.
type Files struct {
	// Keep stores the attachment of a mail and returns the object's id. It is called outside of
	// transactions, and the object must expire unless Commit is called. If Keep returns a refusal
	// with a status below 500, the message is stored without the file.
	Keep func(ctx context.Context, name, contentType string, content []byte) (objectID string, err error)
	// Commit makes an object that Keep stored permanent, in the transaction that writes its
	// message; it is called again if the transaction is retried.
	Commit func(ctx context.Context, objectID string) error
	// Owned returns an object that the user uploaded; ok is false if the user has no such object.
	Owned func(ctx context.Context, userID, objectID string) (file File, ok bool, err error)
	// Links returns URLs that read objects for the lifetime, by object id; objects that no longer
	// exist are left out.
	Links func(ctx context.Context, objectIDs []string, lifetime time.Duration) (urls map[string]string, err error)
	// Remove deletes an object that Keep stored. It returns no error for an object that no longer
	// exists, or that a user uploaded, which support must not delete.
	Remove func(ctx context.Context, objectID string) error
}

// File is the metadata of an object.
type File struct {
	Name, Type string
	Size       int64
}

// userFiles looks up the files that a user attached.
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

// link sets the URLs of attachments. A failure leaves them out, so that the messages can still be
// read.
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

// fileName returns an untrusted name changed so that it is safe on every system.
func fileName(name string) string {
	name = path.Base(strings.ReplaceAll(line(name, 4*maxFileName), `\`, "/"))
	name = strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(`<>:"|?*/`, r):
			return '_'
		case unicode.Is(unicode.Noncharacter_Code_Point, r): // storage refuses these
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

// mediaType returns the media type of a file, or application/octet-stream if it is malformed.
func mediaType(text string) string {
	kind, _, err := mime.ParseMediaType(line(text, 100))
	if err != nil || !strings.Contains(kind, "/") {
		return "application/octet-stream"
	}
	return kind
}
