package signin_test

import (
	"fmt"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
)

// What the application asks of its users is one struct.
func Example() {
	cfg := auth.Config{
		TrustedOrigins: []string{"https://app.example.com"},
		Library: signin.New(signin.Config{
			RequireVerification: true,
			Usernames:           true,
			MinPassword:         10,
		}),
	}
	fmt.Println(cfg.Library != nil)
	// Output: true
}
