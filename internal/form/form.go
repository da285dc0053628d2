// Package form reads forms that buttons of linked pages and mail programs post, in either encoding:
// RFC 8058 leaves the choice to the sender.
package form

import (
	"bytes"
	"mime"
	"mime/multipart"
	"net/url"

	"github.com/kitbackend/kit/capability"
)

// Read reads the form of a request. Refuses with kit/invalid_request.
func Read(c *capability.Call) (url.Values, error) {
	body, err := c.Body()
	if err != nil {
		return nil, err
	}
	values, err := Parse(c.Request().Header.Get("Content-Type"), body)
	if err != nil {
		return nil, capability.ErrInvalidRequest.Because(err)
	}
	return values, nil
}

// Parse reads a form in either encoding. Files are left out.
func Parse(contentType string, body []byte) (url.Values, error) {
	kind, params, _ := mime.ParseMediaType(contentType)
	if kind != "multipart/form-data" {
		return url.ParseQuery(string(body))
	}
	read, err := multipart.NewReader(bytes.NewReader(body), params["boundary"]).ReadForm(int64(len(body)))
	if err != nil {
		return nil, err
	}
	return read.Value, nil
}
