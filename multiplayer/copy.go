package multiplayer

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"time"
)

// copier copies decoded values of one type: a value is decoded once, and a model may change what it
// is given.
type copier struct {
	// unshare gives a shallow copy memory of its own; nil if it shares none.
	unshare func(reflect.Value)
	// ok is false for a type that decodes to what cannot be copied with certainty.
	ok bool
}

// fresh returns a copy of a value that shares no memory with it.
func fresh[T any](c copier, value T) T {
	if c.unshare == nil {
		return value
	}
	own := value
	c.unshare(reflect.ValueOf(&own).Elem())
	return own
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// copierOf returns the copier of a type. A recursive type has none, nor has one that decodes itself,
// unless a shallow copy of it shares nothing.
func copierOf(t reflect.Type, within ...reflect.Type) copier {
	p := reflect.PointerTo(t)
	switch {
	case isFlat(t), t == reflect.TypeFor[time.Time]():
		return copier{ok: true}
	case t == reflect.TypeFor[json.RawMessage]():
	case p.Implements(unmarshaler), p.Implements(textUnmarshaler), slices.Contains(within, t):
		return copier{}
	}
	within = append(slices.Clip(within), t)
	switch t.Kind() {
	case reflect.Struct:
		return copierOfStruct(t, within)
	case reflect.Map:
		item := copierOf(t.Elem(), within...)
		return copier{mapCopy(t, item.unshare), item.ok && isFlat(t.Key())}
	case reflect.Slice:
		item := copierOf(t.Elem(), within...)
		return copier{sliceCopy(t, item.unshare), item.ok}
	case reflect.Array:
		item := copierOf(t.Elem(), within...)
		return copier{each(item.unshare), item.ok}
	case reflect.Pointer:
		item := copierOf(t.Elem(), within...)
		return copier{pointerCopy(t, item.unshare), item.ok}
	case reflect.Interface:
		return copier{interfaceCopy, t.NumMethod() == 0}
	default:
		return copier{}
	}
}

func copierOfStruct(t reflect.Type, within []reflect.Type) copier {
	type field struct {
		index   int
		unshare func(reflect.Value)
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !(f.Anonymous && f.Type.Kind() == reflect.Struct) {
			continue // decoding leaves it as it is
		}
		c := copierOf(f.Type, within...)
		if !c.ok {
			return copier{}
		}
		if c.unshare != nil {
			fields = append(fields, field{i, c.unshare})
		}
	}
	return copier{func(v reflect.Value) {
		for _, f := range fields {
			f.unshare(v.Field(f.index))
		}
	}, true}
}

func each(unshare func(reflect.Value)) func(reflect.Value) {
	return func(v reflect.Value) {
		for i := range v.Len() {
			unshare(v.Index(i))
		}
	}
}

func sliceCopy(t reflect.Type, unshare func(reflect.Value)) func(reflect.Value) {
	return func(v reflect.Value) {
		if v.IsNil() {
			return
		}
		own := reflect.MakeSlice(t, v.Len(), v.Len())
		reflect.Copy(own, v)
		if unshare != nil {
			each(unshare)(own)
		}
		v.Set(own)
	}
}

func pointerCopy(t reflect.Type, unshare func(reflect.Value)) func(reflect.Value) {
	return func(v reflect.Value) {
		if v.IsNil() {
			return
		}
		own := reflect.New(t.Elem())
		own.Elem().Set(v.Elem())
		if unshare != nil {
			unshare(own.Elem())
		}
		v.Set(own)
	}
}

func mapCopy(t reflect.Type, unshare func(reflect.Value)) func(reflect.Value) {
	return func(v reflect.Value) {
		if v.IsNil() {
			return
		}
		own := reflect.MakeMapWithSize(t, v.Len())
		key, item := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		for all := v.MapRange(); all.Next(); {
			key.SetIterKey(all)
			item.SetIterValue(all)
			if unshare != nil {
				unshare(item)
			}
			own.SetMapIndex(key, item)
		}
		v.Set(own)
	}
}

// interfaceCopy copies what JSON decodes to without a type.
func interfaceCopy(v reflect.Value) {
	if own := copyOfAny(v.Interface()); own != nil {
		v.Set(reflect.ValueOf(own))
	}
}

func copyOfAny(value any) any {
	switch value := value.(type) {
	case map[string]any:
		own := make(map[string]any, len(value))
		for name, item := range value {
			own[name] = copyOfAny(item)
		}
		return own
	case []any:
		own := make([]any, len(value))
		for i, item := range value {
			own[i] = copyOfAny(item)
		}
		return own
	default: // a text, a number, a boolean or nil
		return value
	}
}
