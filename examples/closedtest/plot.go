package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/kitbackend/kit/testers"
)

// The size of the plot in units of its view box.
const (
	plotWidth, plotHeight = 640.0, 220.0
	plotLeft, plotBottom  = 10.0, 190.0
	plotRight, plotTop    = 630.0, 20.0
)

// plot is a drawing of the forecast: a bar for each past day, of full height if enough testers were
// opted in, and a line for the days ahead.
type plot struct {
	Line, Area string
	Bars       []bar
	// Best is the point of the highest probability.
	BestX, BestY, Half float64
	First, Last        string
}

type bar struct{ X, Y, W, H float64 }

func height(share float64) float64 { return plotBottom - (plotBottom-plotTop)*min(1, share) }

// draw returns the drawing of an estimate; without a curve it has bars only.
func draw(f testers.Estimate) plot {
	p := plot{Half: height(0.5)}
	seen, ahead := f.Observed.Snapshots, f.Estimates.Curve
	days := len(seen) + max(0, len(ahead)-1)
	if days < 2 {
		return p
	}
	step := (plotRight - plotLeft) / float64(days)
	for i, day := range seen {
		y := height(float64(day.OptedIn) / float64(f.Requirement.TargetSize))
		p.Bars = append(p.Bars, bar{plotLeft + float64(i)*step + 1, y, max(1, step-2), plotBottom - y})
	}
	at := func(i int) float64 { return plotLeft + (float64(len(seen)+i)-0.5)*step }
	var line strings.Builder
	for i, point := range ahead {
		y := height(point.Probability)
		fmt.Fprintf(&line, "%.1f,%.1f ", at(i), y)
		if f.Estimates.BestDate != nil && point.Date == *f.Estimates.BestDate {
			p.BestX, p.BestY = at(i), y
		}
	}
	if p.Line = line.String(); p.Line != "" {
		p.Area = fmt.Sprintf("%.1f,%.1f %s%.1f,%.1f", at(0), plotBottom, p.Line, at(len(ahead)-1), plotBottom)
		p.Last = short(ahead[len(ahead)-1].Date)
	}
	if len(seen) > 0 {
		p.First = short(seen[0].Date)
	}
	return p
}

func short(date string) string {
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return date
	}
	return day.Format("2 Jan")
}
