package oauth

import (
	"encoding/json"
	"strconv"
	"strings"
)

// claims are the members of an ID token or of a provider's response.
type claims map[string]any

// at returns the member of a name, or nil. A dot in the name descends into an object, unless there
// is a member of the whole name.
func (c claims) at(name string) any {
	if value, ok := c[name]; ok {
		return value
	}
	outer, rest, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	inner, _ := c[outer].(map[string]any)
	return claims(inner).at(rest)
}

// text returns a member that is a string or a number, else "".
func (c claims) text(name string) string {
	switch value := c.at(name).(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	default:
		return ""
	}
}

// texts returns the strings of a member that is a list.
func (c claims) texts(name string) []string {
	list, _ := c.at(name).([]any)
	var texts []string
	for _, value := range list {
		if text, ok := value.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// is reports whether a member is true. Apple encodes it as text, Microsoft as a number.
func (c claims) is(name string) bool {
	if value, ok := c.at(name).(bool); ok {
		return value
	}
	value, err := strconv.ParseBool(c.text(name))
	return err == nil && value
}
