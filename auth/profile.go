package auth

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"

	"github.com/kitbackend/kit/capability"
)

// ProfileType is the type of a profile field's value.
type ProfileType string

// The types of profile fields, by their names in better-auth's additionalFields.
const (
	ProfileString  ProfileType = "string"
	ProfileNumber  ProfileType = "number"
	ProfileBoolean ProfileType = "boolean"
)

// Bounds of profile fields.
const (
	MaxProfileFields = 50
	// MaxProfileText is the default and the maximum of [ProfileField.MaxBytes].
	MaxProfileText = 4096
)

// ProfileField is a field that the application adds to its users.
type ProfileField struct {
	// Name is a word of letters and digits; it is the member's name in JSON.
	Name string
	Type ProfileType
	// Editable allows users to set the field themselves, at sign-up and later; other fields are set
	// by [Auth.UpdateUser] alone.
	Editable bool
	// Private hides the field from the user.
	Private bool
	// MaxBytes bounds a string; 0 means [MaxProfileText].
	MaxBytes int
}

var profileName = regexp.MustCompile(`^[a-z][a-zA-Z0-9]{0,63}$`)

// ownMembers are the members of better-auth's user, which no field can be.
var ownMembers = map[string]bool{
	"id": true, "name": true, "email": true, "emailVerified": true, "image": true, "createdAt": true, "updatedAt": true,
	"isAnonymous": true, "username": true, "displayUsername": true, "twoFactorEnabled": true, "password": true,
	"callbackURL": true, "rememberMe": true,
}

func (c Config) validateProfile(faults *capability.Faults) {
	if len(c.Profile) > MaxProfileFields {
		faults.Add("profile", len(c.Profile), "is over the limit", fmt.Sprintf("declare at most %d fields", MaxProfileFields))
	}
	seen := make(map[string]bool)
	for i, f := range c.Profile {
		key := fmt.Sprintf("profile[%d]", i)
		switch {
		case !profileName.MatchString(f.Name) || ownMembers[f.Name] || seen[f.Name]:
			faults.Add(key, f.Name, "cannot be a field's name", "choose another word of letters and digits, lower case first")
		case f.Type != ProfileString && f.Type != ProfileNumber && f.Type != ProfileBoolean:
			faults.Add(key, f.Type, "is no type", "choose string, number or boolean")
		case f.MaxBytes < 0 || f.MaxBytes > MaxProfileText:
			faults.Add(key, f.MaxBytes, "is out of bounds", fmt.Sprintf("allow at most %d bytes", MaxProfileText))
		}
		seen[f.Name] = true
	}
}

// ProfileFields are the fields that the application adds to its users.
func (a *LibraryHost) ProfileFields() []ProfileField { return a.cfg.Profile }

// withFields returns a profile with some fields set; nil removes one.
func (c Config) withFields(profile, set map[string]any) (map[string]any, error) {
	out := maps.Clone(profile)
	if out == nil {
		out = make(map[string]any)
	}
	for name, value := range set {
		field, found := c.field(name)
		if !found {
			return nil, capability.ErrInvalidRequest.Saying("There is no profile field %.64q.", name)
		}
		if value == nil {
			delete(out, name)
			continue
		}
		if err := field.check(value); err != nil {
			return nil, err
		}
		out[name] = value
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

func (c Config) field(name string) (ProfileField, bool) {
	for _, f := range c.Profile {
		if f.Name == name {
			return f, true
		}
	}
	return ProfileField{}, false
}

func (f ProfileField) check(value any) error {
	switch v := value.(type) {
	case string:
		if f.Type == ProfileString {
			limit := f.MaxBytes
			if limit == 0 {
				limit = MaxProfileText
			}
			return capability.CheckText(f.Name, v, 0, limit)
		}
	case bool:
		if f.Type == ProfileBoolean {
			return nil
		}
	case float64:
		if f.Type == ProfileNumber && !math.IsNaN(v) && !math.IsInf(v, 0) {
			return nil
		}
	case int, int64, int32:
		if f.Type == ProfileNumber {
			return nil
		}
	}
	return capability.ErrInvalidRequest.Saying("%s is a %s.", f.Name, f.Type)
}

func sameFields(a, b map[string]any) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// profileText returns the stored form of a profile.
func profileText(profile map[string]any) string {
	if len(profile) == 0 {
		return "{}"
	}
	text, err := json.Marshal(profile)
	if err != nil { // checked before: texts, numbers and booleans always encode
		return "{}"
	}
	return string(text)
}

func (c Config) profileNames() []string {
	names := make([]string, len(c.Profile))
	for i, f := range c.Profile {
		names[i] = f.Name
	}
	return names
}
