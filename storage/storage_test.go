package storage_test

import (
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/storage"
)

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		s, err := storage.New(h, storage.Config{BasePath: basePath}, storage.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return s.Capability(), nil
	})
}
