package capability

import (
	"errors"
	"fmt"
	"slices"
)

// Fault is one reason why a composition is refused at assembly. Refusal, where
// the specification names a code for it, is found by errors.Is.
type Fault struct {
	Capability string
	// Key is the configuration key or part at fault, such as "currencies[1].code".
	Key    string
	Value  any
	Reason string
	// Fix says what to change.
	Fix string
	// Peer is the name of the capability that is missing, where the fault is that it is not composed.
	Peer    string
	Refusal *Error
}

func (f *Fault) Error() string {
	text := f.Capability
	if f.Key != "" {
		text += "." + f.Key
	}
	if f.Value != nil {
		text += fmt.Sprintf(" = %.120q", fmt.Sprint(f.Value))
	}
	text += ": " + f.Reason
	if f.Refusal != nil {
		text += " [" + f.Refusal.Code + "]"
	}
	return text + " (" + f.Fix + ")"
}

func (f *Fault) Unwrap() error {
	if f.Refusal == nil {
		return nil
	}
	return f.Refusal
}

// Faults collects what is wrong, so that all of it is reported at once.
type Faults struct {
	// Capability is the name every added fault carries.
	Capability string
	list       []error
}

// Add records a fault of the capability's configuration.
func (f *Faults) Add(key string, value any, reason, fix string) {
	f.AddFault(Fault{Key: key, Value: value, Reason: reason, Fix: fix})
}

// AddFault records a fault; the capability is filled in.
func (f *Faults) AddFault(fault Fault) {
	if fault.Capability == "" {
		fault.Capability = f.Capability
	}
	f.list = append(f.list, &fault)
}

// Join records the faults in err; a fault that is joined again is recorded once.
func (f *Faults) Join(err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok { // of errors.Join
		for _, one := range several.Unwrap() {
			f.Join(one)
		}
		return
	}
	if err == nil || slices.ContainsFunc(f.list, func(known error) bool { return errors.Is(known, err) }) {
		return
	}
	f.list = append(f.list, err)
}

// Err returns all faults as one error, or nil.
func (f *Faults) Err() error { return errors.Join(f.list...) }

// MissingPeer returns the fault of a capability that is composed without a peer it needs.
func MissingPeer(name, peer string) *Fault {
	return &Fault{
		Capability: name, Key: "peers", Value: peer, Peer: peer,
		Reason: "needs the capability " + peer + ", which is not composed",
		Fix:    "compose " + peer + " too, or leave " + name + " out",
	}
}
