package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/pubsub"
)

// The application grants a scope by issuing a token for a user.
func Example() {
	ctx := context.Background()
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	keys, err := seal.Load(capability.Sandbox, func(string) string { return "" })
	if err != nil {
		panic(err)
	}
	users, err := auth.New(capability.Host{
		DB: db, PubSub: pubsub.NewMemory(), Log: slog.Default(), Now: time.Now,
		BaseURL: &url.URL{Scheme: "https", Host: "api.example.com"},
		Sealing: func() (capability.Sealer, error) { return keys, nil },
	}, auth.Config{}, auth.Peers{})
	if err != nil {
		panic(err)
	}
	if err := db.Migrate(ctx, database.Migrations{Name: auth.Name, FS: users.Capability().Migrations}); err != nil {
		panic(err)
	}

	if err := users.EnsureUser(ctx, "game-server"); err != nil {
		panic(err)
	}
	token, err := users.IssueToken(ctx, "game-server", []string{"leaderboard:submit"}, 10*time.Minute)
	if err != nil {
		panic(err)
	}

	caller, err := users.Users().Bearer(ctx, token)
	if err != nil {
		panic(err)
	}
	fmt.Println(caller.UserID, caller.Scopes)
	// Output: game-server [leaderboard:submit]
}

// Another library takes the place of the default one: this one lets in everyone who
// knows the word of the day.
func Example_library() {
	wordOfTheDay := func(_ capability.Host, a *auth.LibraryHost) (auth.Library, error) {
		mux := http.NewServeMux()
		mux.HandleFunc("POST "+a.BasePath()+"/sign-in/word", func(w http.ResponseWriter, r *http.Request) {
			if err := a.OwnPage(r); err != nil {
				http.Error(w, `{"error":{"code":"FOREIGN_PAGE"}}`, http.StatusForbidden)
				return
			}
			if r.FormValue("word") != "sesame" {
				http.Error(w, `{"error":{"code":"WRONG_WORD"}}`, http.StatusUnauthorized)
				return
			}
			entered, err := a.Enter(w, r, auth.Entry{UserID: "guest", Method: "word"})
			if err != nil {
				http.Error(w, `{"error":{"code":"NO_SUCH_USER"}}`, http.StatusForbidden)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"token": entered.AccessToken})
		})
		return auth.Library{
			Name: "word of the day", Handler: mux,
			Routes: []auth.LibraryRoute{{Method: "POST", Path: "/sign-in/word", Rate: "auth-sign-in", Summary: "Sign in with the word of the day."}},
		}, nil
	}

	k, err := kit.New(kit.WithLogger(slog.New(slog.DiscardHandler)), kit.WithAuth(auth.Config{Library: wordOfTheDay}))
	if err != nil {
		panic(err)
	}
	defer k.Close(context.Background())
	if err := k.Auth().EnsureUser(context.Background(), "guest"); err != nil {
		panic(err)
	}
	for _, word := range []string{"cumin", "sesame"} {
		r := httptest.NewRequest("POST", "/auth/sign-in/word", strings.NewReader("word="+word))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		k.ServeHTTP(w, r)
		fmt.Println(w.Code, len(w.Result().Cookies()), "cookies")
	}
	// Output:
	// 401 0 cookies
	// 200 3 cookies
}
