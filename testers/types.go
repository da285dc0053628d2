package testers

import "github.com/kitbackend/kit/capability"

// DefaultCohort is the cohort that is meant where none is named; the first
// invitation makes it.
const DefaultCohort = "default"

// State is where a member stands on the roster.
type State string

// The states: asked; said yes, which is consent and not enrolment; followed the
// store's link; presumed gone; taken off by staff; left for good.
const (
	StateInvited   State = "invited"
	StateAccepted  State = "accepted"
	StateOptedIn   State = "opted_in"
	StateLapsed    State = "lapsed"
	StateRemoved   State = "removed"
	StateWithdrawn State = "withdrawn"
)

// onRoster reports whether a member of the state counts against the roster.
func (s State) onRoster() bool { return s != StateRemoved && s != StateWithdrawn }

// Presence is what is known of a member's use of the app.
type Presence string

// The presences, the first that applies: mail does not get through; no account
// is known, so nothing is; seen of late; known not to have been.
const (
	PresenceUnreachable Presence = "unreachable"
	PresenceNeverLinked Presence = "never_linked"
	PresenceActive      Presence = "active"
	PresenceInactive    Presence = "inactive"
)

// MailKind is a mail to a tester: the invitation or one of the four nudges.
type MailKind string

// The kinds. [MailInvite] is no nudge.
const (
	MailInvite   MailKind = "invite"
	MailConfirm  MailKind = "confirm"
	MailStore    MailKind = "store"
	MailInactive MailKind = "inactive"
	MailClosing  MailKind = "closing"
)

func (k MailKind) isNudge() bool {
	return k == MailConfirm || k == MailStore || k == MailInactive || k == MailClosing
}

// Status says whether a cohort takes part.
type Status string

// The statuses.
const (
	StatusOpen   Status = "open"
	StatusClosed Status = "closed"
)

// Member is a person of a cohort, as staff sees it.
type Member struct {
	ID       string   `json:"id"`
	CohortID string   `json:"cohortId"`
	Email    string   `json:"email"`
	Name     string   `json:"name"`
	State    State    `json:"state"`
	Activity Presence `json:"activity"`
	// Health is 0 to 100; nil unless the member is opted in and linked.
	Health      *int    `json:"health"`
	LapseReason *string `json:"lapseReason"`
	UserID      *string `json:"userId"`
	// Dates are UTC days, such as "2026-11-21".
	OptedInOn   *string `json:"optedInOn"`
	LastSeenOn  *string `json:"lastSeenOn"`
	StreakDays  int     `json:"streakDays"`
	AppVersion  *string `json:"appVersion"`
	LastSession *string `json:"lastSession"`
	LastNudge   *Nudged `json:"lastNudge"`
	// FeedbackThreads counts the threads of support that the member wrote in;
	// [Testers.ListFeedback] lists them.
	FeedbackThreads int              `json:"feedbackThreads"`
	StateSince      capability.Time  `json:"stateSince"`
	ConsentAt       *capability.Time `json:"consentAt"`

	key, hash, lapse, user       string
	mailJob                      string
	consent, nudgeAt, stateAt    int64
	optedOn, total, seen, noMail int64
	generation                   int64
	nudgeKind                    MailKind
}

// Nudged is a reminder that was sent.
type Nudged struct {
	Kind MailKind        `json:"kind"`
	At   capability.Time `json:"at"`
}

// Membership is what a tester sees of a cohort.
type Membership struct {
	CohortID   string   `json:"cohortId"`
	State      State    `json:"state"`
	Activity   Presence `json:"activity"`
	OptedInOn  *string  `json:"optedInOn"`
	StreakDays int      `json:"streakDays"`
	Window     Window   `json:"window"`
}

// Window is how far the cohort's window is, in days.
type Window struct {
	Elapsed int `json:"elapsed"`
	Days    int `json:"days"`
}

// Memberships are all of one user.
type Memberships struct {
	Memberships []Membership `json:"memberships"`
}

// Cohort is a group of testers, as staff sees it.
type Cohort struct {
	ID            string           `json:"id"`
	Name          string           `json:"name"`
	Status        Status           `json:"status"`
	TargetSize    int              `json:"targetSize"`
	WindowDays    int              `json:"windowDays"`
	MaxRosterSize int              `json:"maxRosterSize"`
	StoreURL      string           `json:"storeUrl"`
	Counts        map[State]int    `json:"counts"`
	Activity      map[Presence]int `json:"activity"`
	// Health is the mean of the members who have one.
	Health *int `json:"health"`
	// Members are shown when asked for, at most [MaxShown] of them, those on the
	// roster first.
	Members  []Member  `json:"members,omitzero"`
	Forecast *Estimate `json:"forecast,omitempty"`

	elapsed, started, resets, lastReset, lastDay int64
	lastPass, nudgeDay, nudges, created          int64
}

// MaxShown bounds the members a cohort is shown with.
const MaxShown = 1000

// Estimate is the forecast of a cohort. Estimates are under Estimates,
// facts under Observed.
type Estimate struct {
	ModelVersion   string          `json:"modelVersion"`
	AsOf           capability.Time `json:"asOf"`
	Timezone       string          `json:"timezone"`
	DayBoundary    string          `json:"dayBoundary"`
	ResetPolicy    ResetPolicy     `json:"resetPolicy"`
	Calibration    Calibration     `json:"calibration"`
	Disclaimer     string          `json:"disclaimer"`
	Reconciliation Reconciliation  `json:"reconciliation"`
	Requirement    Requirement     `json:"requirement"`
	Observed       Observed        `json:"observed"`
	Estimates      Estimates       `json:"estimates"`
}

// Calibration says where the constants come from.
type Calibration struct {
	Status string `json:"status"`
	Basis  string `json:"basis"`
	Fitted bool   `json:"fitted"`
	Note   string `json:"note"`
}

// Reconciliation says whether the store can be asked who opted in: it cannot.
type Reconciliation struct {
	Supported bool   `json:"supported"`
	Reason    string `json:"reason"`
}

// Requirement is what the store asks for.
type Requirement struct {
	TargetSize int `json:"targetSize"`
	WindowDays int `json:"windowDays"`
}

// Observed are counts, not estimates.
type Observed struct {
	OptedIn           int     `json:"optedIn"`
	WithFullStreak    int     `json:"withFullStreak"`
	WindowDaysElapsed int     `json:"windowDaysElapsed"`
	WindowStartedOn   *string `json:"windowStartedOn"`
	Resets            int     `json:"resets"`
	LastResetOn       *string `json:"lastResetOn"`
	// Snapshots are those of the last 60 days, oldest first.
	Snapshots []Snapshot `json:"snapshots"`
}

// Snapshot is what a daily pass saw.
type Snapshot struct {
	Date    string `json:"date"`
	OptedIn int    `json:"optedIn"`

	day, streak, elapsed int64
	probability          float64
	version              string
}

// Estimates are what the model says. SuccessProbability is the probability that
// on the best day of the horizon enough testers have a full streak; nil is
// unknown, with a reason, and 0 is a real value.
type Estimates struct {
	SuccessProbability       *float64 `json:"successProbability"`
	SuccessProbabilityReason *string  `json:"successProbabilityReason"`
	// CompletionDate is the first day with a probability of one half or more.
	CompletionDate           *string          `json:"completionDate"`
	BestDate                 *string          `json:"bestDate"`
	AdditionalTestersForGoal *int             `json:"additionalTestersForGoal"`
	GoalProbability          float64          `json:"goalProbability"`
	ExpectedOptedInAtBest    *float64         `json:"expectedOptedInAtBest"`
	Binding                  *string          `json:"binding"`
	Curve                    []CurvePoint     `json:"curve"`
	Members                  []MemberEstimate `json:"members"`
}

// CurvePoint is the probability on one day.
type CurvePoint struct {
	Date        string  `json:"date"`
	Probability float64 `json:"probability"`
}

// MemberEstimate says how likely a member who is opted in completes the streak,
// and how much likelier the cohort succeeds if the member were active.
type MemberEstimate struct {
	MemberID       string  `json:"memberId"`
	StreakSurvival float64 `json:"streakSurvival"`
	ImpactIfActive float64 `json:"impactIfActive"`
}

// Tester is somebody to invite.
type Tester struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

// InviteResult says who was invited and who was not.
type InviteResult struct {
	Invited []Member  `json:"invited"`
	Refused []Refused `json:"refused"`
}

// Refused is a tester who was not invited, and the code that says why.
type Refused struct {
	Email string `json:"email"`
	Code  string `json:"code"`
}

// Ref names a member of a cohort, by id or address.
type Ref struct {
	CohortID string `json:"cohortId,omitempty"`
	Email    string `json:"email,omitempty"`
	MemberID string `json:"memberId,omitempty"`
}

// NudgeRequest asks for reminders of one kind.
type NudgeRequest struct {
	CohortID string   `json:"cohortId,omitempty"`
	Kind     MailKind `json:"kind"`
	// MemberIDs are at most 100; none means everybody it applies to.
	MemberIDs []string    `json:"memberIds,omitempty"`
	Copy      *CustomCopy `json:"copy,omitempty"`
}

// CustomCopy takes the place of the built-in words. {{name}}, {{cohort}} and
// {{link}} are filled in; the way out stands below in any case.
type CustomCopy struct {
	Subject string `json:"subject"`
	Body    string `json:"body"`
}

// NudgeResult says who was reminded.
type NudgeResult struct {
	Sent    []string  `json:"sent"`
	Skipped []Skipped `json:"skipped"`
}

// Skipped is a member who was not reminded, and why: cooldown, not_eligible,
// unreachable, withdrawn or daily_cap.
type Skipped struct {
	MemberID string `json:"memberId"`
	Reason   string `json:"reason"`
}

// Visit says how a user was seen. The zero value says only that.
type Visit struct {
	AppVersion, SessionID string
}

// Choices lists the values, for documents.
func (State) Choices() []string {
	return []string{string(StateInvited), string(StateAccepted), string(StateOptedIn), string(StateLapsed), string(StateRemoved), string(StateWithdrawn)}
}

// Choices lists the values, for documents.
func (Status) Choices() []string { return []string{string(StatusOpen), string(StatusClosed)} }

// Choices lists the values, for documents.
func (Presence) Choices() []string {
	return []string{string(PresenceUnreachable), string(PresenceNeverLinked), string(PresenceActive), string(PresenceInactive)}
}
