// Guestbook composes a capability of the application with those of the kit.
//
//	go run ./examples/guestbook serve
//	go run ./examples/guestbook doctor
//	curl -c jar 'http://localhost:8080/__kit/dev-login?user=ada'
//	curl http://localhost:8080/guestbook/entries
package main

import (
	"log"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kitcmd"
)

func main() {
	k, err := kit.New(options()...)
	if err != nil {
		log.Fatal(err)
	}
	kitcmd.Main(k)
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
