#include "textflag.h"

// func scanAVX2(out *uint16, packed, table *byte, groups, pairs int)
//
// 32 bytes are two positions of 16 bytes, one in each half of a register; a byte
// has the signs of two rows. Y1 and Y3 add up whole words of what the table has
// for the low and the high four bits, Y2 and Y4 their upper bytes alone, which
// are taken off at the end.
TEXT ·scanAVX2(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DX
	MOVQ packed+8(FP), SI
	MOVQ table+16(FP), R8
	MOVQ groups+24(FP), BX
	MOVQ pairs+32(FP), R9
	MOVQ $0x0F0F0F0F0F0F0F0F, AX
	MOVQ AX, X0
	VPBROADCASTQ X0, Y0

group:
	MOVQ R8, DI
	MOVQ R9, CX
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	VPXOR Y4, Y4, Y4

pair:
	PREFETCHT0 1536(SI)
	VMOVDQU (SI), Y5
	VMOVDQU (DI), Y6
	VPSRLW $4, Y5, Y7
	VPAND Y0, Y5, Y5
	VPAND Y0, Y7, Y7
	VPSHUFB Y5, Y6, Y5
	VPSHUFB Y7, Y6, Y7
	VPADDW Y5, Y1, Y1
	VPSRLW $8, Y5, Y5
	VPADDW Y5, Y2, Y2
	VPADDW Y7, Y3, Y3
	VPSRLW $8, Y7, Y7
	VPADDW Y7, Y4, Y4
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ pair

	VPSLLW $8, Y2, Y5
	VPSUBW Y5, Y1, Y1
	VPSLLW $8, Y4, Y5
	VPSUBW Y5, Y3, Y3
	VEXTRACTI128 $1, Y1, X5
	VPADDW X5, X1, X1
	VEXTRACTI128 $1, Y2, X5
	VPADDW X5, X2, X2
	VEXTRACTI128 $1, Y3, X5
	VPADDW X5, X3, X3
	VEXTRACTI128 $1, Y4, X5
	VPADDW X5, X4, X4
	VMOVDQU X1, (DX)
	VMOVDQU X2, 16(DX)
	VMOVDQU X3, 32(DX)
	VMOVDQU X4, 48(DX)
	ADDQ $64, DX
	DECQ BX
	JNZ group
	VZEROUPPER
	RET

// func estimateAVX2(out *float32, sums *uint16, along, scale *float32, eights int, shift, base, step float32)
TEXT ·estimateAVX2(SB), NOSPLIT, $0-52
	MOVQ out+0(FP), DX
	MOVQ sums+8(FP), SI
	MOVQ along+16(FP), R8
	MOVQ scale+24(FP), R9
	MOVQ eights+32(FP), CX
	VBROADCASTSS shift+40(FP), Y0
	VBROADCASTSS base+44(FP), Y1
	VBROADCASTSS step+48(FP), Y2

eight:
	VPMOVZXWD (SI), Y3
	VCVTDQ2PS Y3, Y3
	VMULPS Y2, Y3, Y3
	VADDPS Y1, Y3, Y3
	VMULPS (R9), Y3, Y3
	VMULPS (R8), Y0, Y4
	VADDPS Y4, Y3, Y3
	VMOVUPS Y3, (DX)
	ADDQ $16, SI
	ADDQ $32, R8
	ADDQ $32, R9
	ADDQ $32, DX
	DECQ CX
	JNZ eight
	VZEROUPPER
	RET

// func dotAVX2(a, b *float32, eights int) float32
TEXT ·dotAVX2(SB), NOSPLIT, $0-28
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), DI
	MOVQ eights+16(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	SUBQ $4, CX
	JLT rest

four:
	VMOVUPS (SI), Y4
	VMOVUPS 32(SI), Y5
	VMOVUPS 64(SI), Y6
	VMOVUPS 96(SI), Y7
	VMULPS (DI), Y4, Y4
	VMULPS 32(DI), Y5, Y5
	VMULPS 64(DI), Y6, Y6
	VMULPS 96(DI), Y7, Y7
	VADDPS Y4, Y0, Y0
	VADDPS Y5, Y1, Y1
	VADDPS Y6, Y2, Y2
	VADDPS Y7, Y3, Y3
	ADDQ $128, SI
	ADDQ $128, DI
	SUBQ $4, CX
	JGE four

rest:
	ADDQ $4, CX
	JZ sum

one:
	VMOVUPS (SI), Y4
	VMULPS (DI), Y4, Y4
	VADDPS Y4, Y0, Y0
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ one

sum:
	VADDPS Y1, Y0, Y0
	VADDPS Y3, Y2, Y2
	VADDPS Y2, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS X1, X0, X0
	VHADDPS X0, X0, X0
	VHADDPS X0, X0, X0
	VZEROUPPER
	MOVSS X0, ret+24(FP)
	RET

// func atLeastAVX2(m *blockMask, values *[blockRows]float32, least float32)
//
// A byte of the mask is eight values; a block has 1,024.
TEXT ·atLeastAVX2(SB), NOSPLIT, $0-20
	MOVQ m+0(FP), DI
	MOVQ values+8(FP), SI
	VBROADCASTSS least+16(FP), Y0
	MOVQ $64, CX

sixteen:
	VMOVUPS (SI), Y1
	VMOVUPS 32(SI), Y2
	VCMPPS $0x0D, Y0, Y1, Y1
	VCMPPS $0x0D, Y0, Y2, Y2
	VMOVMSKPS Y1, AX
	VMOVMSKPS Y2, BX
	SHLL $8, BX
	ORL BX, AX
	MOVW AX, (DI)
	ADDQ $64, SI
	ADDQ $2, DI
	DECQ CX
	JNZ sixteen
	VZEROUPPER
	RET
