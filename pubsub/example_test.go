package pubsub_test

import (
	"context"
	"fmt"

	"github.com/kitbackend/kit/pubsub"
)

func Example() {
	bus := pubsub.NewMemory()
	looked := make(chan string)
	cancel := bus.Subscribe("session/42", func(payload []byte) {
		if payload == nil { // hints may have been missed: read the row in any case
			return
		}
		looked <- string(payload)
	})
	defer cancel()

	if err := bus.Publish(context.Background(), "session/42", []byte("version 7")); err != nil {
		fmt.Println(err)
	}
	fmt.Println("read the session again:", <-looked)
	// Output: read the session again: version 7
}
