package testers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/local"
)

// Config configures testers; the zero value has one cohort, "default", without a store address.
type Config struct {
	// BaseURL is the prefix of the links in mails, by default the URL of the kit.
	BaseURL string
	// OptInLinkTTL is how long confirm and opt-in links are valid, and after how long a member who
	// takes no next step lapses, in whole days, by default 14 days, at most 90. Opt-out links never
	// expire.
	OptInLinkTTL time.Duration
	// Cohorts are the declared cohorts; more can be created by [Testers.SetCohort]. At most 50.
	Cohorts []CohortConfig
	// CohortDefaults are the defaults of cohorts.
	CohortDefaults CohortDefaults
	Forecast       Forecast
	Activity       Activity
	Health         Health
	Nudges         Nudges
	Copy           Copy
	// ActOnGet makes confirm and opt-in links take effect when they are fetched, without the
	// button: then programs that follow links trigger them too.
	ActOnGet bool
	// MailTemplate returns the name of the email template of a mail, such as one in the tester's
	// language; nil or "" sends the built-in text. It is called in the transaction that queues the
	// mail, and an error refuses the mail. The template is executed with a [MailData]; its text
	// must contain OptOut.
	MailTemplate func(ctx context.Context, kind MailKind, member Member) (name string, err error)
	// Pages is the template of the pages of the links; nil is the built-in one. It is executed with
	// a [Page]. Pages may not have scripts.
	Pages *template.Template
	// NoDispatch prevents outside callers from starting TESTERS_DAILY.
	NoDispatch bool
	// Database is the name of the database binding of the roster, by default "DB".
	Database string
	// BasePath is the path prefix of the routes, by default "/testers".
	BasePath string
}

// CohortConfig declares a cohort. Zero sizes select the defaults.
type CohortConfig struct {
	// ID matches ^[a-z0-9][a-z0-9_-]{0,63}$.
	ID, Name string
	// StoreURL is the opt-in page of the store: https, or http on this machine.
	StoreURL                              string
	TargetSize, WindowDays, MaxRosterSize int
}

// CohortDefaults are the store's requirement and the maximum size of a roster.
type CohortDefaults struct {
	// TargetSize is how many testers are required, by default 12, at most 100.
	TargetSize int
	// WindowDays is for how many days they are required, by default 14, at most 60.
	WindowDays int
	// MaxRosterSize limits the members on the roster, by default 100, at most 500.
	MaxRosterSize int
	// StoreURL is the store address of a cohort without one.
	StoreURL string
}

// ResetPolicy is what an interruption does to the days counted before it.
type ResetPolicy string

// The policies: days are counted from zero again, or are kept.
const (
	ResetPolicyReset ResetPolicy = "reset"
	ResetPolicyCarry ResetPolicy = "carry"
)

// Forecast configures the constants of the model. They are chosen, not fitted to data. Changing one
// requires another ModelVersion: otherwise the kit does not start.
type Forecast struct {
	// ModelVersion is at most 40 bytes, by default "1".
	ModelVersion string
	// ResetPolicy is ResetPolicyReset by default, the pessimistic one.
	ResetPolicy ResetPolicy
	// HorizonDays is the horizon of the estimate, by default 45, at most 180.
	HorizonDays int
	// GoalProbability is the success probability that AdditionalTestersForGoal aims at, by default
	// 0.9.
	GoalProbability float64
	// CompletionProbability is the probability of success that the completion date waits for, by
	// default 0.5.
	CompletionProbability float64 `json:",omitzero"`
	// StaleAfter is the age of the last daily pass from which there is no estimate, by default 36 h,
	// at least 24 h.
	StaleAfter time.Duration `json:",omitzero"`
	Hazard     Hazard
	Join       Joins
}

// Hazard is the probability of leaving per day, by activity; PostJoin applies to members who have
// yet to opt in. By default .008, .030, .020, .050 and .008, each where it is 0.
type Hazard struct{ Active, Inactive, NeverLinked, Unreachable, PostJoin float64 }

// Joins are the priors of members who have not opted in. By default .50 and .15,
// .75 and .30, .10 and .05, each where it is 0.
type Joins struct{ Invited, Accepted, Lapsed Join }

// Join is the probability of ever opting in, and for those who do, the probability of doing so per
// day.
type Join struct{ Ever, Daily float64 }

// Activity configures which members are active and when a member is presumed to have left.
type Activity struct {
	// ActiveWithinDays is by default 3, LapseAfterInactiveDays 21,
	// LapseAfterUnreachableDays 7.
	ActiveWithinDays, LapseAfterInactiveDays, LapseAfterUnreachableDays int
}

// Health configures the health of a tester, from 0 to 100.
type Health struct {
	// Weights sum to 1, by default .5, .3 and .2.
	Recency, Streak, Reach float64
	// HalfLifeDays is by default 4.
	HalfLifeDays float64
	// SoftReach is the reach of a tester whose mails bounced lately, by default .5; it is 1 for one
	// whose mails arrive and 0 for one who is unreachable.
	SoftReach float64 `json:",omitzero"`
	// GreenAt and AmberAt are the thresholds of the colours in dashboards, by default 70 and 40.
	GreenAt, AmberAt int
}

// Nudges configures the reminders.
type Nudges struct {
	// Cooldown is the minimum time between two reminders of one tester, of any kind, by default 48
	// h, at least 1 h.
	Cooldown time.Duration
	// ConfirmAfter and StoreAfter are the time before a member can be reminded of the next step, by
	// default 48 h and 24 h.
	ConfirmAfter, StoreAfter time.Duration
	// ClosingWithinDays is by default 3.
	ClosingWithinDays int
	// DailyCap limits the reminders of a cohort per UTC day, by default 50.
	DailyCap int
	// Auto makes the daily pass send reminders.
	Auto bool
}

// Copy configures the rules of custom reminder texts.
type Copy struct {
	// MaxBody is the maximum size of a body, by default 2000 bytes, at most 10,000.
	MaxBody int
	// AllowHosts are the hosts that links may point to, in addition to those of the kit and the
	// store.
	AllowHosts []string
	// ExtraTerms are additional words that are refused.
	ExtraTerms []string
}

const (
	maxCohorts = 50
	maxHorizon = 180
	maxTarget  = 100
	maxWindow  = 60
	maxRoster  = 500
	maxTTLDays = 90
	day        = 24 * time.Hour
)

// The defaults of constants that the hash of a version holds only where they differ.
const (
	defaultCompletion = 0.5
	defaultStaleAfter = 36 * time.Hour
	defaultSoftReach  = 0.5
)

var cohortForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func (c Config) withDefaults(base *url.URL) Config {
	if c.BaseURL == "" && base != nil {
		c.BaseURL = base.String()
	}
	c.OptInLinkTTL = cmp.Or(c.OptInLinkTTL, 14*day)
	d := &c.CohortDefaults
	d.TargetSize, d.WindowDays, d.MaxRosterSize = cmp.Or(d.TargetSize, 12), cmp.Or(d.WindowDays, 14), cmp.Or(d.MaxRosterSize, 100)
	f := &c.Forecast
	f.ModelVersion, f.ResetPolicy = cmp.Or(f.ModelVersion, "1"), cmp.Or(f.ResetPolicy, ResetPolicyReset)
	f.HorizonDays, f.GoalProbability = cmp.Or(f.HorizonDays, 45), cmp.Or(f.GoalProbability, 0.9)
	f.CompletionProbability, f.StaleAfter = cmp.Or(f.CompletionProbability, defaultCompletion), cmp.Or(f.StaleAfter, defaultStaleAfter)
	f.Hazard = f.Hazard.or(Hazard{Active: .008, Inactive: .030, NeverLinked: .020, Unreachable: .050, PostJoin: .008})
	f.Join.Invited = f.Join.Invited.or(Join{.50, .15})
	f.Join.Accepted = f.Join.Accepted.or(Join{.75, .30})
	f.Join.Lapsed = f.Join.Lapsed.or(Join{.10, .05})
	a := &c.Activity
	a.ActiveWithinDays, a.LapseAfterInactiveDays = cmp.Or(a.ActiveWithinDays, 3), cmp.Or(a.LapseAfterInactiveDays, 21)
	a.LapseAfterUnreachableDays = cmp.Or(a.LapseAfterUnreachableDays, 7)
	if h := &c.Health; h.Recency == 0 && h.Streak == 0 && h.Reach == 0 {
		h.Recency, h.Streak, h.Reach = .5, .3, .2
	}
	c.Health.HalfLifeDays, c.Health.SoftReach = cmp.Or(c.Health.HalfLifeDays, 4), cmp.Or(c.Health.SoftReach, defaultSoftReach)
	c.Health.GreenAt, c.Health.AmberAt = cmp.Or(c.Health.GreenAt, 70), cmp.Or(c.Health.AmberAt, 40)
	n := &c.Nudges
	n.Cooldown = cmp.Or(n.Cooldown, 48*time.Hour)
	n.ConfirmAfter, n.StoreAfter = cmp.Or(n.ConfirmAfter, 48*time.Hour), cmp.Or(n.StoreAfter, 24*time.Hour)
	n.ClosingWithinDays, n.DailyCap = cmp.Or(n.ClosingWithinDays, 3), cmp.Or(n.DailyCap, 50)
	c.Copy.MaxBody = cmp.Or(c.Copy.MaxBody, 2000)
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/testers")
	return c
}

func (h Hazard) or(d Hazard) Hazard {
	return Hazard{cmp.Or(h.Active, d.Active), cmp.Or(h.Inactive, d.Inactive), cmp.Or(h.NeverLinked, d.NeverLinked),
		cmp.Or(h.Unreachable, d.Unreachable), cmp.Or(h.PostJoin, d.PostJoin)}
}

func (j Join) or(d Join) Join { return Join{cmp.Or(j.Ever, d.Ever), cmp.Or(j.Daily, d.Daily)} }

// complete sets the defaults of a declared cohort.
func (c Config) complete(cohort CohortConfig) CohortConfig {
	d := c.CohortDefaults
	cohort.Name = cmp.Or(cohort.Name, cohort.ID)
	cohort.StoreURL = cmp.Or(cohort.StoreURL, d.StoreURL)
	cohort.TargetSize, cohort.WindowDays = cmp.Or(cohort.TargetSize, d.TargetSize), cmp.Or(cohort.WindowDays, d.WindowDays)
	cohort.MaxRosterSize = cmp.Or(cohort.MaxRosterSize, d.MaxRosterSize)
	return cohort
}

// fault returns the invalid field of a completed cohort, the reason and the fix.
func (c CohortConfig) fault() (field, reason, fix string) {
	switch {
	case !cohortForm.MatchString(c.ID):
		return "id", "is not an id", "use up to 64 lower case letters, digits, _ and -"
	case capability.CheckText("name", c.Name, 1, 200) != nil || !plain(c.Name):
		return "name", "is not a name", "use up to 200 bytes on one line"
	case c.StoreURL != "" && !isStore(c.StoreURL):
		return "storeUrl", "is not an https address", "use the store's opt-in page"
	case c.TargetSize < 1 || c.TargetSize > maxTarget:
		return "targetSize", "is out of bounds", "use 1 to 100"
	case c.WindowDays < 1 || c.WindowDays > maxWindow:
		return "windowDays", "is out of bounds", "use 1 to 60"
	case c.MaxRosterSize < 1 || c.MaxRosterSize > maxRoster:
		return "maxRosterSize", "is out of bounds", "use 1 to 500"
	}
	return "", "", ""
}

// isStore reports whether text is a store address: https, or http on this machine, for tests.
func isStore(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || len(text) > 1000 {
		return false
	}
	return u.Scheme == "https" || (u.Scheme == "http" && local.Host(u.Hostname()))
}

func (c Config) validate() error {
	faults := capability.Faults{Capability: Name}
	base, err := url.Parse(c.BaseURL)
	if err != nil || (base.Scheme != "https" && base.Scheme != "http") || base.Host == "" || len(c.BaseURL) > 300 {
		faults.Add("baseUrl", c.BaseURL, "is not an address", "use the https address of the kit")
	}
	if c.OptInLinkTTL < day || c.OptInLinkTTL > maxTTLDays*day || c.OptInLinkTTL%day != 0 {
		faults.Add("optInLinkTtlDays", c.OptInLinkTTL.String(), "is out of bounds", "use 1 to 90 whole days")
	}
	if len(c.Cohorts) > maxCohorts {
		faults.Add("cohorts", len(c.Cohorts), "are over the limit", "use at most 50")
	}
	seen := make(map[string]bool)
	for i, cohort := range c.Cohorts {
		if field, reason, fix := c.complete(cohort).fault(); field != "" {
			faults.Add(fmt.Sprintf("cohorts[%d].%s", i, field), nil, reason, fix)
		}
		if seen[cohort.ID] {
			faults.Add(fmt.Sprintf("cohorts[%d].id", i), cohort.ID, "is declared twice", "declare each cohort once")
		}
		seen[cohort.ID] = true
	}
	if field, reason, fix := c.complete(CohortConfig{ID: DefaultCohort}).fault(); field != "" {
		faults.Add("cohortDefaults."+field, nil, reason, fix)
	}
	c.validateForecast(&faults)
	c.validateOthers(&faults)
	return faults.Err()
}

func (c Config) validateForecast(faults *capability.Faults) {
	f := c.Forecast
	if len(f.ModelVersion) > 40 || !plain(f.ModelVersion) {
		faults.Add("forecast.modelVersion", nil, "is too long or not plain text", "use at most 40 bytes")
	}
	if f.ResetPolicy != ResetPolicyReset && f.ResetPolicy != ResetPolicyCarry {
		faults.Add("forecast.resetPolicy", string(f.ResetPolicy), "is unknown", "use reset or carry")
	}
	if f.HorizonDays < 1 || f.HorizonDays > maxHorizon {
		faults.Add("forecast.horizonDays", f.HorizonDays, "is out of bounds", "use 1 to 180")
	}
	if f.StaleAfter < day {
		faults.Add("forecast.staleAfterHours", f.StaleAfter.String(), "is less than a day", "use 24 hours or more: the pass is daily")
	}
	for key, p := range map[string]float64{
		"goalProbability": f.GoalProbability, "completionProbability": f.CompletionProbability, "hazard.active": f.Hazard.Active, "hazard.inactive": f.Hazard.Inactive,
		"hazard.never_linked": f.Hazard.NeverLinked, "hazard.unreachable": f.Hazard.Unreachable, "hazard.postJoin": f.Hazard.PostJoin,
		"join.invited.ever": f.Join.Invited.Ever, "join.invited.daily": f.Join.Invited.Daily, "join.accepted.ever": f.Join.Accepted.Ever,
		"join.accepted.daily": f.Join.Accepted.Daily, "join.lapsed.ever": f.Join.Lapsed.Ever, "join.lapsed.daily": f.Join.Lapsed.Daily,
	} {
		if !(p >= 0 && p < 1) {
			faults.Add("forecast."+key, nil, "is not a probability", "use 0 to below 1")
		}
	}
}

func (c Config) validateOthers(faults *capability.Faults) {
	if a := c.Activity; a.ActiveWithinDays < 0 || a.LapseAfterInactiveDays < 1 || a.LapseAfterUnreachableDays < 1 {
		faults.Add("activity", nil, "is out of bounds", "use positive days")
	}
	h := c.Health
	if sum := h.Recency + h.Streak + h.Reach; !(sum > 0.999 && sum < 1.001) || h.Recency < 0 || h.Streak < 0 || h.Reach < 0 {
		faults.Add("health.weights", nil, "do not sum to 1", "use three weights that sum to 1")
	}
	if !(h.HalfLifeDays > 0) || h.AmberAt < 0 || h.GreenAt < h.AmberAt || h.GreenAt > 100 {
		faults.Add("health", nil, "is out of bounds", "use a positive half-life and 0 <= amberAt <= greenAt <= 100")
	}
	if !(h.SoftReach > 0 && h.SoftReach <= 1) {
		faults.Add("health.softReach", nil, "is out of bounds", "use more than 0, up to 1")
	}
	n := c.Nudges
	if n.Cooldown < time.Hour || n.ConfirmAfter < 0 || n.StoreAfter < 0 || n.ClosingWithinDays < 0 || n.DailyCap < 1 {
		faults.Add("nudges", nil, "is out of bounds", "use a cooldown of an hour or more and positive numbers")
	}
	if c.Copy.MaxBody < 1 || c.Copy.MaxBody > 10_000 {
		faults.Add("copy.maxBody", c.Copy.MaxBody, "is out of bounds", "use 1 to 10,000 bytes")
	}
}

// constants returns a hash of all constants that affect a forecast. The defaults of those that were
// added later are left out, so that the hash is the one of releases that did not know them.
func (c Config) constants() string {
	except(&c.Forecast.CompletionProbability, defaultCompletion)
	except(&c.Forecast.StaleAfter, defaultStaleAfter)
	except(&c.Health.SoftReach, defaultSoftReach)
	text, err := json.Marshal([]any{c.Forecast, c.Activity, c.Health})
	if err != nil {
		panic(err) // numbers in range always encode
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// except sets a value to zero where it is the default.
func except[T comparable](value *T, def T) {
	if *value == def {
		var zero T
		*value = zero
	}
}

func (c Config) keys() []capability.ConfigKey {
	f, mode := c.Forecast, "confirm"
	if c.ActOnGet {
		mode = "act"
	}
	cohorts := []string{}
	for _, cohort := range c.Cohorts {
		cohorts = append(cohorts, cohort.ID)
	}
	join := func(j Join) map[string]any { return map[string]any{"ever": j.Ever, "daily": j.Daily} }
	return []capability.ConfigKey{
		{Key: "baseUrl", Value: c.BaseURL, Summary: "Where the links in mails begin."},
		{Key: "optInLinkTtlDays", Value: int(c.OptInLinkTTL / day), Summary: "How many days confirm and opt-in links work."},
		{Key: "cohorts", Value: cohorts, Summary: "The declared cohorts."},
		{Key: "cohortDefaults", Value: map[string]any{"targetSize": c.CohortDefaults.TargetSize, "windowDays": c.CohortDefaults.WindowDays,
			"maxRosterSize": c.CohortDefaults.MaxRosterSize, "storeUrl": c.CohortDefaults.StoreURL}, Summary: "What a cohort has unless it says otherwise."},
		{Key: "forecast.modelVersion", Value: f.ModelVersion, Summary: "The version of the constants behind the forecast."},
		{Key: "forecast.resetPolicy", Value: string(f.ResetPolicy), Choices: []string{"reset", "carry"}, Summary: "What an interruption does to counted days."},
		{Key: "forecast.horizonDays", Value: f.HorizonDays, Summary: "How many days ahead are estimated."},
		{Key: "forecast.goalProbability", Value: f.GoalProbability, Summary: "What additional testers are counted for."},
		{Key: "forecast.completionProbability", Value: f.CompletionProbability, Summary: "The probability that the completion date waits for."},
		{Key: "forecast.staleAfterHours", Value: f.StaleAfter.Hours(), Summary: "How old the last daily pass may be for an estimate."},
		{Key: "forecast.hazard", Value: map[string]any{"active": f.Hazard.Active, "inactive": f.Hazard.Inactive, "never_linked": f.Hazard.NeverLinked,
			"unreachable": f.Hazard.Unreachable, "postJoin": f.Hazard.PostJoin}, Summary: "The chosen probability a day of leaving."},
		{Key: "forecast.join", Value: map[string]any{"invited": join(f.Join.Invited), "accepted": join(f.Join.Accepted), "lapsed": join(f.Join.Lapsed)},
			Summary: "The chosen probabilities of opting in."},
		{Key: "activity", Value: map[string]any{"activeWithinDays": c.Activity.ActiveWithinDays, "lapseAfterInactiveDays": c.Activity.LapseAfterInactiveDays,
			"lapseAfterUnreachableDays": c.Activity.LapseAfterUnreachableDays}, Summary: "What is active, and when an opt-in is presumed over."},
		{Key: "health", Value: map[string]any{"weights": map[string]any{"recency": c.Health.Recency, "streak": c.Health.Streak, "reach": c.Health.Reach},
			"halfLifeDays": c.Health.HalfLifeDays, "softReach": c.Health.SoftReach, "greenAt": c.Health.GreenAt, "amberAt": c.Health.AmberAt}, Summary: "How a tester's health is weighed."},
		{Key: "nudges.cooldownHours", Value: c.Nudges.Cooldown.Hours(), Summary: "The least hours between two reminders of a tester."},
		{Key: "nudges.confirmAfterHours", Value: c.Nudges.ConfirmAfter.Hours(), Summary: "How long a confirmation is waited for."},
		{Key: "nudges.storeAfterHours", Value: c.Nudges.StoreAfter.Hours(), Summary: "How long an opt-in is waited for."},
		{Key: "nudges.closingWithinDays", Value: c.Nudges.ClosingWithinDays, Summary: "How near the end of the window is."},
		{Key: "nudges.dailyCap", Value: c.Nudges.DailyCap, Summary: "The most reminders of a cohort a day."},
		{Key: "nudges.auto", Value: c.Nudges.Auto, Summary: "Whether the daily pass sends reminders."},
		{Key: "links.getMode", Value: mode, Choices: []string{"confirm", "act"}, Summary: "Whether a fetched link asks first or acts."},
		{Key: "mailTemplate", Value: c.MailTemplate != nil, Summary: "Whether mails have a form of the application's own."},
		{Key: "pages", Value: c.Pages != nil, Summary: "Whether pages have a form of the application's own."},
		{Key: "dispatch", Value: !c.NoDispatch, Summary: "Whether TESTERS_DAILY may be started from outside."},
		{Key: "copy", Value: map[string]any{"maxBody": c.Copy.MaxBody, "allowHosts": append([]string{}, c.Copy.AllowHosts...),
			"extraTerms": len(c.Copy.ExtraTerms)}, Summary: "What reminders in own words are held to."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the roster."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}
