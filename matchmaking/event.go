package matchmaking

import (
	"context"
	"encoding/json"
	"slices"
)

// The events of the presence socket, distinguished by Type.
type (
	matchFound struct {
		Type      string `json:"type"`
		SessionID string `json:"sessionId"`
		GameKey   string `json:"gameKey"`
	}
	// matchFailed is sent to the players whose state is [Failed], with the code of the reason unless
	// that is of another player of the party.
	matchFailed struct {
		Type    string `json:"type"`
		GameKey string `json:"gameKey"`
		Code    string `json:"code,omitempty"`
	}
	invited struct {
		Type     string `json:"type"`
		InviteID string `json:"inviteId"`
		GameKey  string `json:"gameKey"`
		From     string `json:"from"`
	}
	friendRequested struct {
		Type string `json:"type"`
		From string `json:"from"`
	}
	// friendsOnline is sent when the socket has opened, with all friends who are online, and then
	// with each change.
	friendsOnline struct {
		Type    string   `json:"type"`
		Online  []string `json:"online"`
		Offline []string `json:"offline"`
	}
)

func friends(online, offline []string) friendsOnline {
	return friendsOnline{"friends_online", append([]string{}, online...), append([]string{}, offline...)}
}

// topic is the pubsub topic of the events between the nodes.
const topic = "matchmaking/events"

// receivers is the most users of one hint, so that it stays below the size limit of pubsub.
const receivers = 12

// hint is an event for the sockets of some users, on every node.
type hint struct {
	To    []string        `json:"to"`
	Event json.RawMessage `json:"event"`
}

// push sends an event to the sockets of the users, on all nodes, once the transaction in ctx has
// committed. It is a hint: if it is lost, the stored rows still have the change.
func (m *Matchmaking) push(ctx context.Context, event any, to ...string) {
	raw, err := json.Marshal(event)
	if err != nil {
		panic("matchmaking: an event is texts: " + err.Error())
	}
	for some := range slices.Chunk(to, receivers) {
		payload, err := json.Marshal(hint{some, raw})
		if err == nil {
			err = m.host.PubSub.Publish(ctx, topic, payload)
		}
		if err != nil {
			m.host.Log.WarnContext(ctx, "matchmaking: an event was not pushed", "error", err)
		}
	}
}
