package main

import (
	"context"
	"errors"
	"net/http"
	"path"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
)

// gallery is the capability of the application: it passes uploads to media.
type gallery struct{ k *kit.Kit }

// unseen marks an object that is not a picture, whatever its name is.
const unseen = "none"

func (g gallery) capability() capability.Capability {
	return capability.Capability{
		Name: "gallery", Version: "1.0.0", Prefix: "/gallery", NoUserData: "it has no tables: objects are in storage and items in media",
		Routes: capability.Mount("/gallery",
			capability.Route{Method: http.MethodPost, Path: "/pictures", Guard: capability.User(), MaxBody: 1 << 10,
				Summary: "Have media look at an object of the caller's.", Refusals: []*capability.Error{storage.ErrNotFound, storage.ErrForbidden},
				Handle: capability.JSON(http.StatusOK, g.postPicture)},
		),
	}
}

type chosen struct {
	ID string `json:"id"`
}

type developed struct {
	// Item is null if the object is not a picture.
	Item *media.Item `json:"item"`
}

// postPicture creates the media item of an object, once.
func (g gallery) postPicture(c *capability.Call, body chosen) (developed, error) {
	ctx, user := c.Context(), c.Caller.UserID
	ref := storage.ByID(body.ID).As(user)
	o, err := g.k.Storage().Get(ctx, ref)
	if err != nil {
		return developed{}, err
	}
	if known := o.Metadata["media"]; known == unseen {
		return developed{}, nil
	} else if known != "" {
		i, err := g.k.Media().Get(ctx, user, known)
		return developed{&i}, err
	}
	content, err := g.k.Storage().Open(ctx, ref)
	if err != nil {
		return developed{}, err
	}
	defer content.Close()
	i, err := g.k.Media().Put(ctx, media.Upload{OwnerID: user, Filename: path.Base(o.Path), ContentType: o.ContentType, Size: o.Size,
		Metadata: map[string]string{"object": o.ID}}, content)
	if refused(err) {
		i, err = media.Item{ID: unseen}, nil
	}
	if err != nil {
		return developed{}, err
	}
	return g.keep(c, ref, i)
}

// keep stores the item of an object, unless another request was first.
func (g gallery) keep(c *capability.Call, ref storage.Ref, i media.Item) (found developed, err error) {
	err = g.k.Database().InTx(c.Context(), func(ctx context.Context) error {
		o, err := g.k.Storage().Get(ctx, ref)
		if err != nil {
			return err
		}
		if known := o.Metadata["media"]; known != "" && i.ID != unseen {
			if err := g.k.Media().Delete(ctx, c.Caller.UserID, i.ID); err != nil {
				return err
			}
			first, err := g.k.Media().Get(ctx, c.Caller.UserID, known)
			found.Item = &first
			return err
		}
		if found.Item = &i; i.ID == unseen {
			found.Item = nil
		}
		_, err = g.k.Storage().Update(ctx, ref, storage.Change{Metadata: map[string]string{"media": i.ID}})
		return err
	})
	return found, err
}

func refused(err error) bool {
	return errors.Is(err, media.ErrUnsupportedType) || errors.Is(err, media.ErrCorrupt) || errors.Is(err, media.ErrTooManyPixels) ||
		errors.Is(err, capability.ErrBodyTooLarge)
}
