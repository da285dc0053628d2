package testers

import "testing"

// TestDefaultsKeepTheirHash checks that a node with the defaults starts on a roster of an earlier
// release: constants that were added since do not change the hash.
func TestDefaultsKeepTheirHash(t *testing.T) {
	if got := (Config{}).withDefaults(nil).constants(); got != "150339ad26e47d1dd2f2f987dbc6d2d6986d624659704cb5c890e1b1e4215af2" {
		t.Errorf("the hash of the defaults of version 1 is %s", got)
	}
}

func TestPartOfAConstantLeavesTheOthersTheirDefaults(t *testing.T) {
	all := Config{}.withDefaults(nil).Forecast
	part := Config{Forecast: Forecast{Hazard: Hazard{Active: .01}, Join: Joins{Lapsed: Join{Ever: .2}}}}.withDefaults(nil).Forecast
	all.Hazard.Active, all.Join.Lapsed.Ever = .01, .2
	if part != all {
		t.Errorf("with some constants: %+v, want %+v", part, all)
	}
}
