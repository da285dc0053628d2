package events_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/kittest"
)

// served is an endpoint with a handler.
func served(t *testing.T, name string, handler http.HandlerFunc) events.Endpoint {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return events.Endpoint{Name: name, URL: server.URL, Secret: secret, Private: true, Events: []string{"user.created"}}
}

func TestDeliveryUnderWayDoesNotTurnAnEndpointOnAgain(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var k *kittest.Kit
		to := served(t, "crm", func(w http.ResponseWriter, _ *http.Request) {
			if err := k.Events().Disable(context.Background(), "crm", "it leaks"); err != nil {
				t.Error(err)
			}
		})
		k = compose(t, db, events.Config{Endpoints: []events.Endpoint{to}})
		create(t, k, "ada")
		k.RunJobs()
		if s := status(t, k); s.DisabledAt.IsZero() || s.Reason != "it leaks" || s.Pending != 0 {
			t.Errorf("%+v, want it disabled as the operator said", s)
		}
	})
}
