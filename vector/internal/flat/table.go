package flat

import "math"

// Rows are also coded in groups, for processors that can look up 32 of them at a time: four signs
// of a row are a number, and a table has the sum of the query for each of the 16 numbers. See
// scanGo for the layout.
const groupRows = 32

// useTables reports whether scan is fast on this processor; if not, estimates are made by counting
// bits.
var useTables = fastScan()

// groupBytes returns the length of a group's code: 16 bytes for every four dimensions.
func groupBytes(words int) int { return 16 * 16 * words }

// pack appends the code of a group of rows: the signs 4p to 4p+3 of all rows are adjacent, those of
// a row and of the row 16 after it in one byte. Rows 0 and 8, 1 and 9 and so on are adjacent,
// because that is the order in which sums of bytes are split.
func pack(packed []byte, codes []uint64, words int) []byte {
	from := len(packed)
	packed = append(packed, make([]byte, groupBytes(words))...)
	group := packed[from:]
	for row := range groupRows {
		at := row%16/8 + row%8*2
		shift := row / 16 * 4
		for w, word := range codes[row*words:][:words] {
			for p := range 16 {
				group[(16*w+p)*16+at] |= byte(word>>(4*p)&15) << shift
			}
		}
	}
	return packed
}

// takeTable builds the table of a query: for every four dimensions and each of the 16 combinations
// of a row's signs, the sum of the dimensions in which the query has the same sign, in steps.
func (q *query) takeTable(rest []float32, square float64) {
	positions := len(rest) / 4
	var widest, sum float64
	for p := range positions {
		var width float64
		for _, v := range rest[4*p:][:4] {
			width += math.Abs(float64(v))
		}
		widest = max(widest, width)
		sum += width
	}
	q.table = make([]byte, 16*positions)
	step := widest / float64(min(255, 65535/positions)) // sums must fit into 16 bits
	if step > 0 {
		for p := range positions {
			four := (*[4]float32)(rest[4*p:])
			for signs := range 16 {
				var same float64
				for i, v := range four {
					if (signs>>i&1 == 1) == (v > 0) {
						same += math.Abs(float64(v))
					}
				}
				q.table[16*p+signs] = byte(same/step + 0.5)
			}
		}
	}
	q.loss4 = max(q.loss4, step*step/3*float64(positions))
	q.raised = q.sure * math.Sqrt(q.noise*square+q.loss4)
	q.base, q.step = float32(q.raised-sum), float32(2*step)
}

// estimateTable writes the estimated scores of the rows of a block that are in complete groups, and
// returns how many these are.
func (q *query) estimateTable(out []float32, packed []byte, f *factors) int {
	rows := len(out) / groupRows * groupRows
	var sums [blockRows]uint16
	scan(sums[:rows], packed, q.table)
	estimateSums(out[:rows], sums[:rows], f.along, f.scale, q.shift, q.base, q.step)
	return rows
}

// estimateSumsGo converts sums to estimates.
func estimateSumsGo(out []float32, sums []uint16, along, scale []float32, shift, base, step float32) {
	for i, sum := range sums {
		out[i] = shift*along[i] + scale[i]*(base+step*float32(int32(sum)))
	}
}

// whole returns the estimate of one row, for the query at four bits.
func (q *query) whole(code []uint64, f *factors, at int) float32 {
	return q.shift*f.along[at] + f.scale[at]*float32(q.product(code, f.set[at])+q.raised)
}

// mayTable is may for an estimate of the table or of whole.
func (q *query) mayTable(estimate, reach float32, f *factors, at int) bool {
	along, scale, distance := float64(q.shift*f.along[at]), float64(f.scale[at]), float64(f.distance[at])
	target := float64(reach) - along
	if target <= 0 || scale == 0 || distance == 0 {
		return true
	}
	cosine := min(target/(q.times*q.length*distance), 0.9999)
	loss := math.Sqrt(q.noise*q.length*q.length*(1-cosine*cosine) + q.loss4)
	return (float64(estimate)-along)/scale-q.raised >= target/scale-q.sure*loss
}

// scanGo sums, for each row of some groups, the table entries that its code selects. scan does the
// same for many rows at a time.
func scanGo(out []uint16, packed, table []byte) {
	for g := 0; g*groupRows < len(out); g++ {
		group := packed[g*len(table):][:len(table)]
		for row := range groupRows {
			at, shift := row%16/8+row%8*2, row/16*4
			var sum uint16
			for p := 0; p < len(table); p += 16 {
				sum += uint16(table[p+int(group[p+at]>>shift&15)])
			}
			out[g*groupRows+row] = sum
		}
	}
}
