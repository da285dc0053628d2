package kittest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
)

// connect registers the control-plane key that the test calls with.
func (k *Kit) connect() {
	k.t.Helper()
	base, err := url.Parse(k.BaseURL())
	k.must(err)
	k.identity, err = client.Generate(k.BaseURL()+k.ControlPlane().Capability().Prefix, k.Environment(), base.Scheme+"://"+base.Host)
	k.must(err)
	k.must(k.ControlPlane().Connect(context.Background(), controlplane.Connection{
		Issuer: k.identity.Issuer, PublicKey: controlplane.NewJWK(k.identity.Public()),
	}))
}

// Machine returns a client that calls by control-plane credentials with the scopes, a new one for
// each call. It requires the control plane to be composed.
func (k *Kit) Machine(scopes ...string) *Client {
	k.t.Helper()
	return k.client(func(r *http.Request) {
		var body []byte
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body) // reads from memory
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		r.Header.Set("Authorization", k.credential(r.Method, r.URL.EscapedPath(), body, scopes))
	})
}

// Credential returns the Authorization header of one call without a body.
func (k *Kit) Credential(method, path string, scopes ...string) string {
	k.t.Helper()
	return k.credential(method, path, nil, scopes)
}

func (k *Kit) credential(method, path string, body []byte, scopes []string) string {
	k.t.Helper()
	if k.ControlPlane() == nil {
		k.t.Fatal("kittest: a machine needs kit.WithControlPlane")
	}
	if k.identity.PrivateKey == nil {
		k.connect()
	}
	base, err := url.Parse(k.BaseURL())
	k.must(err)
	if !strings.HasPrefix(path, base.Path) {
		path = base.Path + path
	}
	token, err := k.identity.Token(k.Clock.Now(), method, base.Scheme+"://"+base.Host+path, body, scopes...)
	k.must(err)
	return "Bearer " + token
}
