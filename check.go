package kit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/jobs"
)

var (
	nameForm   = regexp.MustCompile(`^[a-z][a-z0-9-]{1,31}$`)
	methodForm = regexp.MustCompile(`^(GET|HEAD|POST|PUT|PATCH|DELETE|ALL)$`)
	scopeForm  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}(:[a-z][a-z0-9_-]{0,31}){1,2}$`)
	paramForm  = regexp.MustCompile(`^:[A-Za-z][A-Za-z0-9]*$`)
)

// checker applies the rules of assembly to all capabilities together.
type checker struct {
	*capability.Faults
	bindings []*binding
	// incomplete is true if there are capabilities that could not be built.
	incomplete                    bool
	names, prefixes, routes, jobs map[string]string // what is taken, and by whom
	codes                         map[string]bool   // of all refusals
	domains                       map[string]bool   // true for those of all, false for those of the kit's that are not composed
}

// check reports every breach of the rules a composition must keep.
func check(a *assembly, all []capability.Capability) {
	c := checker{
		Faults: &a.faults, bindings: a.kit.bindings, incomplete: a.incomplete,
		names: map[string]string{}, prefixes: map[string]string{}, routes: map[string]string{}, jobs: map[string]string{leftBinding: ownName},
		codes: map[string]bool{}, domains: map[string]bool{},
	}
	for _, node := range graph {
		c.domains[capability.Capability{Name: node.name}.Domain()] = false
	}
	for _, part := range all {
		c.domains[part.Domain()] = true
		for _, e := range part.Refusals {
			c.codes[e.Code] = true
		}
	}
	for _, part := range all {
		c.capability(part)
	}
}

// take claims a unique value.
func (c checker) take(taken map[string]string, part, key, value string) {
	if owner, ok := taken[value]; ok {
		c.fault(part, key, value, "is already taken by "+owner, "give each its own")
		return
	}
	taken[value] = part
}

// claim takes a prefix. Neither may be below the other, whichever comes first:
// the literals of one would shadow the parameters of the other.
func (c checker) claim(part, key, prefix string) {
	for _, taken := range sortedKeys(c.prefixes) {
		owner := c.prefixes[taken]
		if owner != part && taken != prefix && (strings.HasPrefix(prefix, taken+"/") || strings.HasPrefix(taken, prefix+"/")) {
			c.fault(part, key, prefix, "overlaps with "+taken+" of "+owner, "give each its own")
		}
	}
	c.take(c.prefixes, part, key, prefix)
}

func (c checker) fault(part, key string, value any, reason, fix string) {
	c.AddFault(capability.Fault{Capability: part, Key: key, Value: value, Reason: reason, Fix: fix})
}

func (c checker) capability(part capability.Capability) {
	if !nameForm.MatchString(part.Name) {
		c.fault(part.Name, "name", part.Name, "is not a capability name", "use lower case letters, digits and hyphens, 2 to 32 of them")
	}
	c.take(c.names, part.Name, "name", part.Domain()) // two of one domain would share codes, audit actions and tables
	if part.Prefix != "" {
		if !validPrefix(part.Prefix) {
			c.fault(part.Name, "basePath", part.Prefix, "is not a path prefix", "write it like /"+part.Name)
		}
		c.claim(part.Name, "basePath", part.Prefix)
	}
	for _, prefix := range part.Claims {
		c.claim(part.Name, "claims", prefix)
	}
	if part.Database == nil && (part.Migrations != nil || len(part.Parts) > 0) {
		c.fault(part.Name, "database", nil, "is missing, though there are migrations", "set Database to the DB of the host")
	}
	if part.Database != nil && !slices.ContainsFunc(c.bindings, func(b *binding) bool { return b.db == part.Database }) {
		c.fault(part.Name, "database", nil, "is none of the kit's", "set Database to the DB of the host, or give it to the kit with WithNamedDatabase")
	}
	for _, r := range part.Routes {
		c.route(part, r)
	}
	for _, key := range part.Config {
		c.configKey(part, key)
	}
	for _, job := range part.Jobs {
		c.job(part, job)
	}
	c.health(part)
	c.refusals(part)
	c.life(part)
}

// life requires that the capability can export and erase a user's data, or says
// why there is none.
func (c checker) life(part capability.Capability) {
	if part.Name == ownName || part.NoUserData != "" || part.Export != nil && part.Erase != nil {
		return
	}
	c.fault(part.Name, "erase", nil, "does not say how a user's data is exported and erased",
		"set Export and Erase, or NoUserData to the reason why there is none")
}

func (c checker) route(part capability.Capability, r capability.Route) {
	row := r.Method + " " + r.Path
	bad := func(reason, fix string) { c.fault(part.Name, "routes", row, reason, fix) }
	if !methodForm.MatchString(r.Method) {
		bad("has no method the kit serves", "use GET, HEAD, POST, PUT, PATCH, DELETE or capability.Any")
	}
	if !validPath(r.Path) {
		bad("has no well-formed path", "use literal segments, :name parameters and at most one final *")
	}
	if !r.Handle.Valid() {
		bad("has no handler", "make one with capability.JSON, List, Raw or Socket")
	}
	if !r.Guard.Valid() {
		bad("has no guard", "state who may call: capability.User(), ControlPlane(scope), SignedWebhook(v) or Public(why)")
	}
	c.take(c.routes, part.Name, "routes", r.Method+" "+shape(r.Path))
	if r.Guard.Strategy() == capability.StrategyControlPlane {
		c.machineRoute(part, r, bad)
	}
	for _, e := range r.Refusals {
		if !c.defined(e.Code) {
			bad("lists the refusal "+e.Code+", which no capability has", "correct the code, or add it to Refusals of the capability that it is of")
		}
	}
	if r.Idempotent && (r.Handle.IsRaw() || r.Guard.Anonymous()) {
		bad("cannot honour Idempotency-Key", "only responses of a known caller that the kit writes can be repeated")
	}
}

// defined reports whether a capability has the code, or may have it: those of the kit's that are not
// composed, as optional peers are, and those that could not be built, are not known here.
func (c checker) defined(code string) bool {
	domain, _, _ := strings.Cut(code, "/")
	composed, known := c.domains[domain]
	return c.codes[code] || known && !composed || !known && c.incomplete
}

func (c checker) machineRoute(part capability.Capability, r capability.Route, bad func(reason, fix string)) {
	if r.Guard.Scope() == "" && !(part.Name == "control-plane" && strings.HasSuffix(r.Path, "/ping")) {
		bad("is a control-plane route without a scope", "name the scope in capability.ControlPlane")
	}
	if scope := r.Guard.Scope(); scope != "" && !scopeForm.MatchString(scope) {
		bad("has a scope that cannot name an audit action", "write it like "+part.Domain()+":things:read, in lower case")
	}
	if r.Summary == "" {
		bad("is a control-plane route without a summary", "say in one sentence what it does, for the manifest")
	}
	if r.Handle.IsRaw() {
		bad("is a control-plane route that writes its own response", "use capability.JSON or List: the call is recorded before the response")
	}
}

func validPath(path string) bool {
	rest, ok := strings.CutPrefix(path, "/")
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		if !segment.MatchString(part) && !paramForm.MatchString(part) && !(part == "*" && i == len(parts)-1) {
			return false
		}
	}
	return ok
}

// shape returns a path without its parameter names: to the router two routes of one shape are the
// same, and it would silently keep the later one.
func shape(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, ":") {
			parts[i] = ":"
		}
	}
	return strings.Join(parts, "/")
}

func (c checker) job(part capability.Capability, job jobs.Binding) {
	for _, f := range job.Faults() {
		c.fault(part.Name, "jobs", job.Name, f.Reason, f.Fix)
	}
	if c.bindings[0].queue.Has(job.Name) { // of the queue itself, as none is registered yet
		c.jobs[job.Name] = ownName
	}
	c.take(c.jobs, part.Name, "jobs", job.Name)
}

func (c checker) configKey(part capability.Capability, key capability.ConfigKey) {
	if _, err := json.Marshal(key.Value); err != nil {
		c.fault(part.Name, key.Key, nil, "does not encode as JSON", "give the manifest a plain value")
	}
	if len(key.Choices) > 0 && !slices.Contains(key.Choices, fmt.Sprint(key.Value)) {
		c.fault(part.Name, key.Key, key.Value, "is not one of the choices", "use "+strings.Join(key.Choices, ", "))
	}
}

func (c checker) health(part capability.Capability) {
	seen := make(map[string]string)
	for _, key := range part.Health {
		c.take(seen, part.Name, "health", key.Key)
		if key.Read == nil {
			c.fault(part.Name, "health", key.Key, "has no Read", "give it a function that returns a small value")
		}
	}
}

// refusals must be of the capability's own domain: clients find the table of
// codes by it. The kit's own part declares the general ones.
func (c checker) refusals(part capability.Capability) {
	for _, e := range part.Refusals {
		if part.Name != ownName && !strings.HasPrefix(e.Code, part.Domain()+"/") {
			c.fault(part.Name, "refusals", e.Code, "is not a code of the domain "+part.Domain(), "name it "+part.Domain()+"/reason")
		}
		if e.Status < 400 || e.Status > 599 {
			c.fault(part.Name, "refusals", e.Code, "has no HTTP status of a refusal", "use 400 to 599")
		}
	}
}
