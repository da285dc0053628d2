package flat

import "golang.org/x/sys/cpu"

func fastScan() bool { return cpu.X86.HasAVX2 }

// scan is scanGo with AVX2 if available.
func scan(out []uint16, packed, table []byte) {
	if !cpu.X86.HasAVX2 || len(out) == 0 {
		scanGo(out, packed, table)
		return
	}
	groups := len(out) / groupRows
	_ = packed[groups*len(table)-1]
	scanAVX2(&out[0], &packed[0], &table[0], groups, len(table)/32)
}

// estimateSums is estimateSumsGo for complete groups, with AVX2 if available.
func estimateSums(out []float32, sums []uint16, along, scale []float32, shift, base, step float32) {
	if !cpu.X86.HasAVX2 || len(sums) == 0 {
		estimateSumsGo(out, sums, along, scale, shift, base, step)
		return
	}
	last := len(sums) - 1
	_, _, _ = out[last], along[last], scale[last]
	estimateAVX2(&out[0], &sums[0], &along[0], &scale[0], len(sums)/8, shift, base, step)
}

// dot is dotGo with AVX2 if available, which adds in another order.
func dot(a, b []float32) float32 {
	eights := len(a) / 8
	if !cpu.X86.HasAVX2 || eights == 0 {
		return dotGo(a, b)
	}
	b = b[:len(a)]
	return dotAVX2(&a[0], &b[0], eights) + dotGo(a[8*eights:], b[8*eights:])
}

// atLeast is atLeastGo with AVX2 if available.
func atLeast(values *[blockRows]float32, least float32) (m blockMask) {
	if !cpu.X86.HasAVX2 {
		return atLeastGo(values, least)
	}
	atLeastAVX2(&m, values, least)
	return m
}

// scanAVX2 is scanGo for groups of rows and pairs of entries of 16 bytes.
//
//go:noescape
func scanAVX2(out *uint16, packed, table *byte, groups, pairs int)

//go:noescape
func estimateAVX2(out *float32, sums *uint16, along, scale *float32, eights int, shift, base, step float32)

//go:noescape
func dotAVX2(a, b *float32, eights int) float32

//go:noescape
func atLeastAVX2(m *blockMask, values *[blockRows]float32, least float32)
