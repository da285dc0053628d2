package wire_test

import (
	"crypto/ed25519"
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/kitbackend/kit/controlplane/internal/wire"
)

// TestKeyIDIsTheThumbprint uses the example key of RFC 8037, appendix A.3.
func TestKeyIDIsTheThumbprint(t *testing.T) {
	key, err := wire.JWK{KeyType: "OKP", Curve: "Ed25519", X: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}.Public()
	if err != nil {
		t.Fatal(err)
	}
	if id := wire.KeyID(key); id != "k_kPrK_qmxVWaYVA9wwBF6Iu" {
		t.Error(id)
	}
}

func TestJWKForm(t *testing.T) {
	good := wire.NewJWK(ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey))
	for name, change := range map[string]func(*wire.JWK){
		"kty EC":        func(j *wire.JWK) { j.KeyType = "EC" },
		"crv X25519":    func(j *wire.JWK) { j.Curve = "X25519" },
		"x empty":       func(j *wire.JWK) { j.X = "" },
		"x short":       func(j *wire.JWK) { j.X = j.X[:42] },
		"x padded":      func(j *wire.JWK) { j.X += "=" },
		"x with break":  func(j *wire.JWK) { j.X += "\n" },
		"x not encoded": func(j *wire.JWK) { j.X = "+" + j.X[1:] },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Public(); !errors.Is(err, wire.ErrForm) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := good.Public(); err != nil {
		t.Error(err)
	}
}

// TestSmallOrder computes every point of small order from the curve and checks that all its
// encodings are refused, including signs and overflows.
func TestSmallOrder(t *testing.T) {
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	mod := func(x *big.Int) *big.Int { return x.Mod(x, p) }
	mul := func(a, b *big.Int) *big.Int { return mod(new(big.Int).Mul(a, b)) }
	inv := func(a *big.Int) *big.Int { return new(big.Int).ModInverse(a, p) }
	d := mul(big.NewInt(-121665), inv(big.NewInt(121666)))
	add := func(a, b [2]*big.Int) [2]*big.Int {
		k := mul(mul(d, mul(a[0], b[0])), mul(a[1], b[1]))
		x := new(big.Int).Add(mul(a[0], b[1]), mul(a[1], b[0]))
		y := new(big.Int).Add(mul(a[1], b[1]), mul(a[0], b[0]))
		return [2]*big.Int{mul(x, inv(new(big.Int).Add(big.NewInt(1), k))), mul(y, inv(mod(new(big.Int).Sub(big.NewInt(1), k))))}
	}
	// Any curve point times the prime order of the base point is of small order.
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	seen := map[string]bool{}
	for y := int64(2); len(seen) < 8 && y < 200; y++ {
		yy := mul(big.NewInt(y), big.NewInt(y))
		num := mod(new(big.Int).Sub(yy, big.NewInt(1)))
		x := new(big.Int).ModSqrt(mul(num, inv(new(big.Int).Add(big.NewInt(1), mul(d, yy)))), p)
		if x == nil {
			continue
		}
		sum, power := [2]*big.Int{big.NewInt(0), big.NewInt(1)}, [2]*big.Int{x, big.NewInt(y)}
		for i := range order.BitLen() {
			if order.Bit(i) == 1 {
				sum = add(sum, power)
			}
			power = add(power, power)
		}
		seen[sum[0].String()+","+sum[1].String()] = true
		for _, form := range []*big.Int{sum[1], new(big.Int).Add(sum[1], p)} {
			if form.BitLen() > 255 {
				continue
			}
			key := make([]byte, 32)
			form.FillBytes(key)
			slices.Reverse(key)
			for _, sign := range []byte{0, 0x80} {
				key[31] ^= sign
				if err := wire.Usable(key); !errors.Is(err, wire.ErrWeak) {
					t.Errorf("%x: %v", key, err)
				}
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("found %d points of small order, want 8", len(seen))
	}
}
