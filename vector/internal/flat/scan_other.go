//go:build !amd64

package flat

func fastScan() bool { return false }

func scan(out []uint16, packed, table []byte) { scanGo(out, packed, table) }

func estimateSums(out []float32, sums []uint16, along, scale []float32, shift, base, step float32) {
	estimateSumsGo(out, sums, along, scale, shift, base, step)
}

func dot(a, b []float32) float32 { return dotGo(a, b) }

func atLeast(values *[blockRows]float32, least float32) blockMask { return atLeastGo(values, least) }
