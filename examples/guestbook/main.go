// Guestbook composes a capability of the application's own next to the kit's.
//
//	go run ./examples/guestbook
//	curl -c jar 'http://localhost:8080/__kit/dev-login?user=ada'
//	curl http://localhost:8080/guestbook/entries
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

func main() {
	k, err := kit.New(options()...)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "localhost:8080", Handler: k, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func options() []kit.Option {
	return []kit.Option{
		kit.WithEnvironment(capability.Development),
		kit.WithAuth(auth.Config{}),
		kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) {
			return newGuestbook(k.Host(), config{}).capability(), nil
		}),
	}
}
