package matchmaking_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

func TestCodes(t *testing.T) {
	for range 2000 {
		code := matchmaking.NewCode()
		if got, ok := matchmaking.ParseCode(code); !ok || got != code {
			t.Fatalf("%s does not parse", code)
		}
		if strings.ContainsAny(code, "IO01") {
			t.Fatalf("%s holds a character that is taken for another", code)
		}
	}
	for _, word := range matchmaking.Rude {
		if got, ok := matchmaking.ParseCode(word + "-2345"); !ok {
			t.Errorf("%s is no code anyway: %s", word, got)
		}
	}
	good := []string{
		"ABCD-2345", "abcd-2345", " abcd 2345 ", "AbCd2345", "a b c d - 2 3 4 5", "ABCD\u20132345", "ABCD\u22122345",
		"\uff21\uff22\uff23\uff24-\uff12\uff13\uff14\uff15", "ABCD\u00a02345", "ABCD\t2345\n",
	}
	for _, text := range good {
		if code, ok := matchmaking.ParseCode(text); !ok || code != "ABCD-2345" {
			t.Errorf("%q is %q, %v", text, code, ok)
		}
	}
	bad := []string{
		"", "-", "ABCD", "2345-ABCD", "ABCO-2345", "ABCI-2345", "ABCD-2340", "ABCD-2341", "ABCD--2345", "AB-CD2345", "ABCDE-2345",
		"ABCD-23456", "ABCD-234", "ABÇD-2345", "ABCD_2345", "ABCD-2345\x00", strings.Repeat(" ", 100) + "ABCD-2345", "\xff\xfe",
	}
	for _, text := range bad {
		if code, ok := matchmaking.ParseCode(text); ok {
			t.Errorf("%q is %q, want no code", text, code)
		}
	}
}

// FuzzParseCode checks that parsing returns only codes, and that parsing such a code returns it
// unchanged.
func FuzzParseCode(f *testing.F) {
	f.Add("abcd 2345")
	f.Fuzz(func(t *testing.T, text string) {
		code, ok := matchmaking.ParseCode(text)
		if !ok {
			return
		}
		if again, ok := matchmaking.ParseCode(code); !ok || again != code || len(code) != 9 {
			t.Errorf("%q is %q, which is %q", text, code, again)
		}
	})
}

// TestCodeTolerance checks that spaces, case and the dash do not matter.
func TestCodeTolerance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code := matchmaking.NewCode()
		var b strings.Builder
		for _, r := range code {
			if r == '-' && rapid.Bool().Draw(t, "dash") {
				continue
			}
			b.WriteString(strings.Repeat(" ", rapid.IntRange(0, 3).Draw(t, "spaces")))
			text := string(r)
			if rapid.Bool().Draw(t, "lower") {
				text = strings.ToLower(text)
			}
			b.WriteString(text)
		}
		if got, ok := matchmaking.ParseCode(b.String()); !ok || got != code {
			t.Fatalf("%q is %q, want %q", b.String(), got, code)
		}
	})
}

func TestRoom(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		room, err := r.OpenRoom(ctx, "four", "host")
		r.ok(err)
		view, err := r.Multiplayer().View(ctx, room.SessionID, "host")
		r.ok(err)
		if view.Phase != multiplayer.PhaseOpen || view.Game != "four" || view.Seats != 4 {
			t.Errorf("got %+v, want an open session of four", view)
		}
		if want := r.Clock.Now().Add(time.Minute); !room.ExpiresAt.Equal(want) {
			t.Errorf("expires at %s, want %s", room.ExpiresAt, want)
		}
		want := matchmaking.Joined{SessionID: room.SessionID, GameKey: "four"}
		for _, user := range []string{"host", "ada", "ada"} { // the host, and joining again, take no use
			joined, err := r.JoinRoom(ctx, strings.ToLower(strings.ReplaceAll(room.Code, "-", " ")), user)
			r.ok(err)
			if diff := cmp.Diff(want, joined); diff != "" {
				t.Error(diff)
			}
		}
		r.ok(errorOf(r.JoinRoom(ctx, room.Code, "bob")))
		r.refuses(matchmaking.ErrInvalidCode, errorOf(r.JoinRoom(ctx, room.Code, "eve"))) // both uses are taken
		r.ok(errorOf(r.JoinRoom(ctx, room.Code, "ada")))
		view, err = r.Multiplayer().View(ctx, room.SessionID, "bob")
		r.ok(err)
		if diff := cmp.Diff([]string{"host", "ada", "bob"}, view.Players); diff != "" {
			t.Error(diff)
		}
		r.Clock.Advance(time.Minute)
		r.refuses(matchmaking.ErrInvalidCode, errorOf(r.JoinRoom(ctx, room.Code, "ada")))
		r.ok(r.Clean(ctx))
	})
}

func TestRoomRefusals(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.refuses(matchmaking.ErrGameNotFound, errorOf(r.OpenRoom(ctx, "chess", "host")))
		r.refuses(matchmaking.ErrNoSessions, errorOf(r.OpenRoom(ctx, "alone", "host")))
		r.refuses(capability.ErrInvalidRequest, errorOf(r.OpenRoom(ctx, "duel", "")))
		r.refuses(capability.ErrInvalidRequest, errorOf(r.JoinRoom(ctx, "ABCD-2345", "a\x00")))
		r.refuses(matchmaking.ErrInvalidCode, errorOf(r.JoinRoom(ctx, "ABCD-2345", "ada")))
		r.refuses(matchmaking.ErrInvalidCode, errorOf(r.JoinRoom(ctx, "nonsense", "ada")))

		room, err := r.OpenRoom(ctx, "duel", "host")
		r.ok(err)
		r.ok(errorOf(r.JoinRoom(ctx, room.Code, "ada")))
		r.refuses(matchmaking.ErrRoomFull, errorOf(r.JoinRoom(ctx, room.Code, "bob")))
		r.ok(errorOf(r.Multiplayer().Act(ctx, room.SessionID, "ada", multiplayer.Action{Data: []byte(`{}`)})))
		r.refuses(matchmaking.ErrRoomNotFound, errorOf(r.JoinRoom(ctx, room.Code, "bob")))

		for range 9 {
			r.ok(errorOf(r.OpenRoom(ctx, "duel", "host")))
		}
		r.refuses(matchmaking.ErrLimitReached, errorOf(r.OpenRoom(ctx, "duel", "host")))
		r.Clock.Advance(15 * time.Minute)
		r.ok(errorOf(r.OpenRoom(ctx, "duel", "host")))
	})
}

// TestRoomIsLeftAndClosed checks that the host of a room that waits for players leaves or closes it,
// and that nobody can join it then.
func TestRoomIsLeftAndClosed(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		host, ada := r.User("host"), r.User("ada")
		for path, status := range map[string]int{"leave": 204, "close": 200} {
			var room matchmaking.Room
			host.Post("/matchmaking/games/staked/rooms", nil).Want(201, "").JSON(&room)
			session := "/multiplayer/sessions/" + room.SessionID
			host.Post(session+"/"+path, nil).Want(status, "")
			ada.Post("/matchmaking/rooms/"+room.Code+"/join", nil).Want(404, "matchmaking/room_not_found")
			ada.Post(session+"/join", nil).Want(409, "multiplayer/invalid_transition")
		}
	})
}

// TestRoomEndsWithItsCode checks that a room that has not begun when its code expires is over: nobody
// joins it by the id of its session, and no stake is held.
func TestRoomEndsWithItsCode(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"host", "ada"} {
			r.ok(errorOf(r.Ledger().Credit(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: 100, Ref: "gift/" + user})))
		}
		host, ada := r.User("host"), r.User("ada")
		open := func(game string) (room matchmaking.Room, session string) {
			host.Post("/matchmaking/games/"+game+"/rooms", nil).Want(201, "").JSON(&room)
			return room, "/multiplayer/sessions/" + room.SessionID
		}
		room, session := open("staked")
		begun, table := open("table")
		ada.Post("/matchmaking/rooms/"+begun.Code+"/join", nil).Want(200, "")
		r.Clock.Advance(15 * time.Minute)
		host, ada = r.User("host"), r.User("ada") // their tokens have expired
		ada.Post("/matchmaking/rooms/"+room.Code+"/join", nil).Want(400, "matchmaking/invalid_code")
		ada.Post(session+"/join", nil).Want(409, "multiplayer/invalid_transition")
		r.RunJobs()
		ada.Post(session+"/join", nil).Want(409, "multiplayer/invalid_transition")
		var v multiplayer.View
		host.Get(session).Want(200, "").JSON(&v)
		if v.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("the room is %s", v.Phase)
		}
		host.Get(table).Want(200, "").JSON(&v)
		if v.Phase != multiplayer.PhaseActive {
			t.Errorf("the room that has begun is %s", v.Phase)
		}
		b, err := r.Ledger().Balance(ctx, "host", "coins")
		r.ok(err)
		if b.Held != 0 {
			t.Errorf("of the host %d are held", b.Held)
		}
	})
}

// TestRoomRace checks that of many who join concurrently exactly MaxUses get in, and each has a
// seat.
func TestRoomRace(t *testing.T) {
	cfg := games()
	cfg[3].RoomCodes.MaxUses = 4
	each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
		room, err := r.OpenRoom(ctx, "table", "host")
		r.ok(err)
		var in, out atomic.Int64
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				_, err := r.JoinRoom(ctx, room.Code, fmt.Sprint("user-", i))
				switch {
				case err == nil:
					in.Add(1)
				case matchmaking.ErrInvalidCode.Is(capability.AsError(err)):
					out.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		free, _, err := r.Multiplayer().Seats(ctx, room.SessionID)
		r.ok(err)
		if in.Load() != 4 || out.Load() != 20 || free != 1 {
			t.Errorf("%d in, %d out, %d seats free; want 4, 20, 1", in.Load(), out.Load(), free)
		}
	})
}

// TestRoomUseAndSeatTogether checks that a refused seat does not take a use.
func TestRoomUseAndSeatTogether(t *testing.T) {
	cfg := games()
	cfg[0].RoomCodes.MaxUses = 1
	each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
		room, err := r.OpenRoom(ctx, "duel", "host")
		r.ok(err)
		r.ok(errorOf(r.Multiplayer().Join(ctx, room.SessionID, "ada"))) // not by the code
		for range 2 {
			r.refuses(matchmaking.ErrRoomFull, errorOf(r.JoinRoom(ctx, room.Code, "bob")))
		}
	})
}

// TestCodeCollision checks that a code that is taken is drawn again; if all are taken, the room is
// refused. An entry without a room is not a valid code.
func TestCodeCollision(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	r.DrawCodes("AAAA-2222", "AAAA-2222", "BBBB-3333", "AAAA-2222")
	first, err := r.OpenRoom(ctx, "duel", "a")
	r.ok(err)
	second, err := r.OpenRoom(ctx, "duel", "b")
	r.ok(err)
	if first.Code != "AAAA-2222" || second.Code != "BBBB-3333" {
		t.Errorf("got %s and %s", first.Code, second.Code)
	}
	if err := errorOf(r.OpenRoom(ctx, "duel", "c")); err == nil {
		t.Error("a room got a code of another one")
	}
}

// TestCodeStore checks that the application can provide the store of codes.
func TestCodeStore(t *testing.T) {
	var codes *kv.Memory
	now := time.Now
	codes = kv.NewMemory(func() time.Time { return now() })
	r := newRig(t, matchmaking.Config{Codes: codes})
	now = r.Clock.Now
	room, err := r.OpenRoom(ctx, "duel", "host")
	r.ok(err)
	if value, ok, _ := codes.Get(ctx, "matchmaking:"+room.Code); !ok || string(value) != room.SessionID {
		t.Errorf("the store has %q, want the session", value)
	}
	r.ok(errorOf(r.JoinRoom(ctx, room.Code, "ada")))
	r.ok(codes.Put(ctx, "matchmaking:AAAA-2222", []byte("nothing"), time.Hour))
	r.refuses(matchmaking.ErrInvalidCode, errorOf(r.JoinRoom(ctx, "AAAA-2222", "ada")))
}

// TestGuessing checks the limits of wrong codes, ten a minute for a user and sixty for an address;
// after that even a valid code is refused.
func TestGuessing(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	room, err := r.OpenRoom(ctx, "table", "host")
	r.ok(err)
	for range 10 {
		r.refuses(matchmaking.ErrInvalidCode, errorOf(r.JoinRoom(ctx, "ABCD-2345", "eve")))
	}
	err = errorOf(r.JoinRoom(ctx, room.Code, "eve"))
	r.refuses(capability.ErrRateLimited, err)
	if diff := cmp.Diff(matchmaking.Pause{RetryAfterMs: 60_000}, capability.AsError(err).Details); diff != "" {
		t.Error(diff)
	}
	r.ok(errorOf(r.JoinRoom(ctx, room.Code, "ada")))
	r.Clock.Advance(time.Minute)
	r.ok(errorOf(r.JoinRoom(ctx, room.Code, "eve")))

	from := func(ip string) func(user, code string) error {
		at := capability.WithRequestInfo(ctx, &capability.RequestInfo{IP: ip})
		return func(user, code string) error { return errorOf(r.JoinRoom(at, code, user)) }
	}
	school, home := from("192.0.2.1"), from("192.0.2.2")
	for i := range 60 {
		r.refuses(matchmaking.ErrInvalidCode, school(fmt.Sprint("pupil-", i), "ABCD-2345"))
	}
	r.refuses(capability.ErrRateLimited, school("another", "ABCD-2345"))
	r.refuses(matchmaking.ErrInvalidCode, home("another", "ABCD-2345"))

	// A network has any number of IPv6 addresses.
	for i := range 60 {
		r.refuses(matchmaking.ErrInvalidCode, from(fmt.Sprintf("2001:db8::%x", i))(fmt.Sprint("guest-", i), "ABCD-2345"))
	}
	r.refuses(capability.ErrRateLimited, from("2001:db8::ffff")("one more", "ABCD-2345"))
}

// TestGuessingAtOnce checks that concurrent guesses do not exceed the limit.
func TestGuessingAtOnce(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		var tried atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if matchmaking.ErrInvalidCode.Is(capability.AsError(errorOf(r.JoinRoom(ctx, "ABCD-2345", "eve")))) {
					tried.Add(1)
				}
			})
		}
		wg.Wait()
		if tried.Load() != 10 {
			t.Errorf("%d codes were tried, want 10", tried.Load())
		}
	})
}

// TestRoomLimitAtOnce checks that rooms opened concurrently do not exceed the limit.
func TestRoomLimitAtOnce(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	var opened atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if _, err := r.OpenRoom(ctx, "four", "host"); err == nil {
				opened.Add(1)
			}
		})
	}
	wg.Wait()
	if opened.Load() != 10 {
		t.Errorf("%d rooms, want 10", opened.Load())
	}
}
