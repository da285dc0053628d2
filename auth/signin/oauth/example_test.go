package oauth_test

import (
	"fmt"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/secrets"
)

// Users of one organisation sign in with Google, and others with a provider of the
// application's own.
func Example() {
	google := oauth.Google("client-id", secrets.NewValue("client-secret"))
	google.Require = map[string]string{"hd": "example.com"}
	cfg := auth.Config{Library: signin.New(signin.Config{Providers: []oauth.Provider{
		google,
		oauth.OpenID("acme", "https://accounts.example.com", "kit", secrets.NewValue("another-secret")),
	}})}
	fmt.Println(cfg.Library != nil)
	// Output: true
}
