"""The matrix and attention kernels for Cortex-M cores with the DSP extension: two multiply-accumulates an instruction.

As thumb_kernels.py, whose notes hold here, but a vector is packed as pairs of 16-bit numbers, in the order in which
weights come apart: for int8 (x0, x2), (x1, x3), as `uxtb16` takes bytes 0 and 2 of a word, and, rotated, 1 and 3; for
int4 (x0, x4), (x1, x5), (x2, x6), (x3, x7), by a mask that leaves weights times 16.
"""

from array import array

import micropython

from . import viper_kernels as _viper
from .thumb_kernels import heads as _heads

NAME = "dsp"

_job = array("i", bytes(44))
_last = array("i", bytes(32))


# Matrices


@micropython.viper
def linear(y: ptr32, x: ptr32, px: ptr32, buf: ptr8, d: ptr32):
    jobs = _job
    job = ptr32(jobs)
    count = d[0]
    x = ptr32(int(x) + (d[1] << 2))
    d = ptr32(int(d) + 8)
    padded = d[5]
    groups = d[6]
    blocks = d[7]
    row = (padded >> 1) + groups << 2  # bytes of a block, packed
    run = _pack8
    if d[10] == 4:
        run = _pack4
    cols = d[4] << 2
    rest = cols & 28  # bytes of a last eight that is not whole: it is packed from _last
    start = int(px)
    n = blocks
    while n > 0:
        job[0] = int(x)
        job[1] = start
        job[2] = padded >> 3
        job[3] = 0
        x = ptr32(int(x) + cols)
        if rest > 0:
            to = ptr32(_last)
            job[3] = int(to)
            end = int(to) + rest
            whole = int(to) + 32
            at = ptr32(int(x) - rest)
            while int(to) != end:
                v = at[0]
                to[0] = v
                at = ptr32(int(at) + 4)
                to = ptr32(int(to) + 4)
            while int(to) != whole:
                to[0] = 0
                to = ptr32(int(to) + 4)
        run(jobs)
        start += row
        n -= 1
    run = _rows8
    piece = 72  # bytes of code for 16 weights
    if d[10] == 4:
        run = _rows4
        piece = 70
    full = row
    rest = padded & 63
    if rest > 0:
        full -= (rest >> 1) + 1 << 2
        job[9] = (4 - (rest >> 4)) * piece + 2 | (rest & 8) >> 3
    if d[10] == 4:
        padded >>= 1
    while True:
        weights = int(buf) + d[0]
        scales = int(buf) + d[1]
        bias = 0
        if d[2] >= 0:
            bias = int(buf) + d[2]
        job[1] = int(y) + (d[11] << 2)
        rows = d[3]
        if blocks > 1:
            rows //= blocks
        n = d[8]
        job[7] = 1 << n >> 1
        job[8] = n + (d[9] << 30)
        start = int(px)
        n = blocks
        while True:
            job[0] = scales
            end = job[1] + (rows << 2)
            job[2] = end
            job[3] = start
            job[4] = start + full
            start += row
            job[5] = start
            job[6] = bias
            job[10] = weights
            run(jobs)
            n -= 1
            if n == 0:
                break
            job[1] = end
            weights += rows * padded
            scales += rows * groups << 1
            if bias != 0:
                bias += rows << 2
        count -= 1
        if count == 0:
            break
        d = ptr32(int(d) + 48)


@micropython.asm_thumb
def _pack8(r0):
    data(2, 0xE92D, 0x0F00, 0xC80F, 0xB408)  # stmdb sp!, {r8-r11}; ldm r0, {r0, r1, r2, r3}; push {r3}
    data(2, 0xB402)  # push {r1}
    data(2, 0xF04F, 0x1301)  # mov.w r3, #0x10001
    label(GROUP)
    data(2, 0x9100, 0x3104, 0xF04F, 0x0C00, 0xF04F, 0x0E08)  # str r1, [sp]; adds r1, #4; mov.w r12, #0; mov.w lr, #8
    label(EIGHT)
    data(2, 0x2A01)  # cmp r2, #1
    bne(HERE)
    data(2, 0x9C01, 0x2C00)  # ldr r4, [sp, #4]; cmp r4, #0
    beq(HERE)
    data(2, 0x4620)  # mov r0, r4
    label(HERE)
    data(2, 0xE8B0, 0x0FF0)  # ldm r0!, {r4-r11}
    data(2, 0xEAC4, 0x4406, 0xEAC5, 0x4507)  # pkhbt r4, r4, r6, lsl #16; pkhbt r5, r5, r7, lsl #16
    data(2, 0xEAC8, 0x460A, 0xEAC9, 0x470B)  # pkhbt r6, r8, r10, lsl #16; pkhbt r7, r9, r11, lsl #16
    data(2, 0xFB24, 0xCC03, 0xFB25, 0xCC03)  # smlad r12, r4, r3, r12; smlad r12, r5, r3, r12
    data(2, 0xFB26, 0xCC03, 0xFB27, 0xCC03)  # smlad r12, r6, r3, r12; smlad r12, r7, r3, r12
    data(2, 0xC1F0)  # stmia r1!, {r4-r7}
    data(2, 0x3A01)  # subs r2, #1
    beq(SUM)
    data(2, 0xF1BE, 0x0E01)  # subs.w lr, lr, #1
    bne(EIGHT)
    label(SUM)
    data(2, 0xEA4F, 0x1CCC, 0xF1CC, 0x0C00)  # lsl.w r12, r12, #7; rsb r12, r12, #0
    data(2, 0x9C00, 0xF8C4, 0xC000, 0x2A00)  # ldr r4, [sp]; str.w r12, [r4]; cmp r2, #0
    bne(GROUP)
    data(2, 0xB002, 0xE8BD, 0x0F00, 0x2000)  # add sp, #8; ldmia.w sp!, {r8-r11}; movs r0, #0



@micropython.asm_thumb
def _pack4(r0):
    data(2, 0xE92D, 0x0F00, 0xC80F, 0xB408)  # stmdb sp!, {r8-r11}; ldm r0, {r0, r1, r2, r3}; push {r3}
    data(2, 0xB402)  # push {r1}
    data(2, 0xF04F, 0x1301)  # mov.w r3, #0x10001
    label(GROUP)
    data(2, 0x9100, 0x3104, 0xF04F, 0x0C00, 0xF04F, 0x0E08)  # str r1, [sp]; adds r1, #4; mov.w r12, #0; mov.w lr, #8
    label(EIGHT)
    data(2, 0x2A01)  # cmp r2, #1
    bne(HERE)
    data(2, 0x9C01, 0x2C00)  # ldr r4, [sp, #4]; cmp r4, #0
    beq(HERE)
    data(2, 0x4620)  # mov r0, r4
    label(HERE)
    data(2, 0xE8B0, 0x0FF0)  # ldm r0!, {r4-r11}
    data(2, 0xEAC4, 0x4408, 0xEAC5, 0x4509)  # pkhbt r4, r4, r8, lsl #16; pkhbt r5, r5, r9, lsl #16
    data(2, 0xEAC6, 0x460A, 0xEAC7, 0x470B)  # pkhbt r6, r6, r10, lsl #16; pkhbt r7, r7, r11, lsl #16
    data(2, 0xFB24, 0xCC03, 0xFB25, 0xCC03)  # smlad r12, r4, r3, r12; smlad r12, r5, r3, r12
    data(2, 0xFB26, 0xCC03, 0xFB27, 0xCC03)  # smlad r12, r6, r3, r12; smlad r12, r7, r3, r12
    data(2, 0xC1F0)  # stmia r1!, {r4-r7}
    data(2, 0x3A01)  # subs r2, #1
    beq(SUM)
    data(2, 0xF1BE, 0x0E01)  # subs.w lr, lr, #1
    bne(EIGHT)
    label(SUM)
    data(2, 0xEA4F, 0x1CCC, 0xF1CC, 0x0C00)  # lsl.w r12, r12, #7; rsb r12, r12, #0
    data(2, 0x9C00, 0xF8C4, 0xC000, 0x2A00)  # ldr r4, [sp]; str.w r12, [r4]; cmp r2, #0
    bne(GROUP)
    data(2, 0xB002, 0xE8BD, 0x0F00, 0x2000)  # add sp, #8; ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.asm_thumb
def _rows8(r0):
    # [sp]: scale, result, end of results, vector, end of its whole groups, its end, bias or 0, half of a unit, shift
    # and mode, way into the code for a short group. r0: weights, r1: vector, r12: a group's sum, r14: the row's
    data(2, 0xE92D, 0x0F00, 0xE8B0, 0x07FE)  # stmdb sp!, {r8-r11}; ldmia.w r0!, {r1-r10}
    data(2, 0xE92D, 0x07FE, 0x6800)  # stmdb sp!, {r1-r10}; ldr r0, [r0]
    data(2, 0xF8DD, 0xB000)  # ldr.w r11, [sp]
    label(ROW)
    data(2, 0xE9DD, 0x2E06, 0x2A00)  # ldrd r2, lr, [sp, #24]; cmp r2, #0
    beq(UNBIASED)
    data(2, 0xCA08, 0x449E, 0x9206)  # ldmia r2!, {r3}; add lr, r3; str r2, [sp, #24]
    label(UNBIASED)
    data(2, 0xE9DD, 0x1203, 0x4291)  # ldrd r1, r2, [sp, #12]; cmp r1, r2
    bcc(GROUP)
    label(SHORT)
    data(2, 0xF851, 0xCB04, 0x9A09, 0x07D3)  # ldr r12, [r1], #4; ldr r2, [sp, #36]; lsls r3, r2, #31
    beq(SIXTEENS)
    data(2, 0xE8B0, 0x0300, 0xC9F0)  # ldmia.w r0!, {r8, r9}; ldmia r1!, {r4-r7}
    data(2, 0xFA3F, 0xFA88, 0xFB2A, 0xCC04)  # uxtb16 r10, r8; smlad r12, r10, r4, r12
    data(2, 0xFA3F, 0xFA98, 0xFB2A, 0xCC05)  # uxtb16 r10, r8, ror #8; smlad r12, r10, r5, r12
    data(2, 0xFA3F, 0xFA89, 0xFB2A, 0xCC06)  # uxtb16 r10, r9; smlad r12, r10, r6, r12
    data(2, 0xFA3F, 0xFA99, 0xFB2A, 0xCC07, 0x3A01)  # uxtb16 r10, r9, ror #8; smlad r12, r10, r7, r12; subs r2, #1
    label(SIXTEENS)
    data(2, 0x4497)  # add pc, r2
    label(GROUP)
    data(2, 0xF851, 0xCB04)  # ldr r12, [r1], #4
    data(2, 0xE8B0, 0x030C, 0xC9F0, 0xFA3F, 0xFA82)  # ldmia.w r0!, {r2, r3, r8, r9}; ldmia r1!, {r4-r7}; uxtb16 r10, r2
    data(2, 0xFB2A, 0xCC04, 0xFA3F, 0xFA92)  # smlad r12, r10, r4, r12; uxtb16 r10, r2, ror #8
    data(2, 0xFB2A, 0xCC05, 0xFA3F, 0xFA83)  # smlad r12, r10, r5, r12; uxtb16 r10, r3
    data(2, 0xFB2A, 0xCC06, 0xFA3F, 0xFA93)  # smlad r12, r10, r6, r12; uxtb16 r10, r3, ror #8
    data(2, 0xFB2A, 0xCC07, 0xC9F0, 0xFA3F, 0xFA88)  # smlad r12, r10, r7, r12; ldmia r1!, {r4-r7}; uxtb16 r10, r8
    data(2, 0xFB2A, 0xCC04, 0xFA3F, 0xFA98)  # smlad r12, r10, r4, r12; uxtb16 r10, r8, ror #8
    data(2, 0xFB2A, 0xCC05, 0xFA3F, 0xFA89)  # smlad r12, r10, r5, r12; uxtb16 r10, r9
    data(2, 0xFB2A, 0xCC06, 0xFA3F, 0xFA99)  # smlad r12, r10, r6, r12; uxtb16 r10, r9, ror #8
    data(2, 0xFB2A, 0xCC07)  # smlad r12, r10, r7, r12
    data(2, 0xE8B0, 0x030C, 0xC9F0, 0xFA3F, 0xFA82)  # ldmia.w r0!, {r2, r3, r8, r9}; ldmia r1!, {r4-r7}; uxtb16 r10, r2
    data(2, 0xFB2A, 0xCC04, 0xFA3F, 0xFA92)  # smlad r12, r10, r4, r12; uxtb16 r10, r2, ror #8
    data(2, 0xFB2A, 0xCC05, 0xFA3F, 0xFA83)  # smlad r12, r10, r5, r12; uxtb16 r10, r3
    data(2, 0xFB2A, 0xCC06, 0xFA3F, 0xFA93)  # smlad r12, r10, r6, r12; uxtb16 r10, r3, ror #8
    data(2, 0xFB2A, 0xCC07, 0xC9F0, 0xFA3F, 0xFA88)  # smlad r12, r10, r7, r12; ldmia r1!, {r4-r7}; uxtb16 r10, r8
    data(2, 0xFB2A, 0xCC04, 0xFA3F, 0xFA98)  # smlad r12, r10, r4, r12; uxtb16 r10, r8, ror #8
    data(2, 0xFB2A, 0xCC05, 0xFA3F, 0xFA89)  # smlad r12, r10, r5, r12; uxtb16 r10, r9
    data(2, 0xFB2A, 0xCC06, 0xFA3F, 0xFA99)  # smlad r12, r10, r6, r12; uxtb16 r10, r9, ror #8
    data(2, 0xFB2A, 0xCC07)  # smlad r12, r10, r7, r12
    data(2, 0xE8B0, 0x030C, 0xC9F0, 0xFA3F, 0xFA82)  # ldmia.w r0!, {r2, r3, r8, r9}; ldmia r1!, {r4-r7}; uxtb16 r10, r2
    data(2, 0xFB2A, 0xCC04, 0xFA3F, 0xFA92)  # smlad r12, r10, r4, r12; uxtb16 r10, r2, ror #8
    data(2, 0xFB2A, 0xCC05, 0xFA3F, 0xFA83)  # smlad r12, r10, r5, r12; uxtb16 r10, r3
    data(2, 0xFB2A, 0xCC06, 0xFA3F, 0xFA93)  # smlad r12, r10, r6, r12; uxtb16 r10, r3, ror #8
    data(2, 0xFB2A, 0xCC07, 0xC9F0, 0xFA3F, 0xFA88)  # smlad r12, r10, r7, r12; ldmia r1!, {r4-r7}; uxtb16 r10, r8
    data(2, 0xFB2A, 0xCC04, 0xFA3F, 0xFA98)  # smlad r12, r10, r4, r12; uxtb16 r10, r8, ror #8
    data(2, 0xFB2A, 0xCC05, 0xFA3F, 0xFA89)  # smlad r12, r10, r5, r12; uxtb16 r10, r9
    data(2, 0xFB2A, 0xCC06, 0xFA3F, 0xFA99)  # smlad r12, r10, r6, r12; uxtb16 r10, r9, ror #8
    data(2, 0xFB2A, 0xCC07)  # smlad r12, r10, r7, r12
    data(2, 0xE8B0, 0x030C, 0xC9F0, 0xFA3F, 0xFA82)  # ldmia.w r0!, {r2, r3, r8, r9}; ldmia r1!, {r4-r7}; uxtb16 r10, r2
    data(2, 0xFB2A, 0xCC04, 0xFA3F, 0xFA92)  # smlad r12, r10, r4, r12; uxtb16 r10, r2, ror #8
    data(2, 0xFB2A, 0xCC05, 0xFA3F, 0xFA83)  # smlad r12, r10, r5, r12; uxtb16 r10, r3
    data(2, 0xFB2A, 0xCC06, 0xFA3F, 0xFA93)  # smlad r12, r10, r6, r12; uxtb16 r10, r3, ror #8
    data(2, 0xFB2A, 0xCC07, 0xC9F0, 0xFA3F, 0xFA88)  # smlad r12, r10, r7, r12; ldmia r1!, {r4-r7}; uxtb16 r10, r8
    data(2, 0xFB2A, 0xCC04, 0xFA3F, 0xFA98)  # smlad r12, r10, r4, r12; uxtb16 r10, r8, ror #8
    data(2, 0xFB2A, 0xCC05, 0xFA3F, 0xFA89)  # smlad r12, r10, r5, r12; uxtb16 r10, r9
    data(2, 0xFB2A, 0xCC06, 0xFA3F, 0xFA99)  # smlad r12, r10, r6, r12; uxtb16 r10, r9, ror #8
    data(2, 0xFB2A, 0xCC07)  # smlad r12, r10, r7, r12
    data(2, 0xF83B, 0x2B02, 0x0412, 0xFB5C, 0xEE02)  # ldrh r2, [r11], #2; lsls r2, r2, #16; smmla lr, r12, r2, lr
    data(2, 0xE9DD, 0x2304, 0x4291)  # ldrd r2, r3, [sp, #16]; cmp r1, r2
    bcc_w(GROUP)
    data(2, 0x4299)  # cmp r1, r3
    bcc_w(SHORT)
    data(2, 0x9A08, 0xFA4E, 0xFE02, 0x0052)  # ldr r2, [sp, #32]; asr.w lr, lr, r2; lsls r2, r2, #1
    bcs(ADD)
    bmi(STORE)
    data(2, 0xF30E, 0x0E0F, 0xF1CE, 0x0E00, 0xF30E, 0x0E0F)  # ssat lr, #16, lr; rsb lr, lr, #0; ssat lr, #16, lr
    data(2, 0xF1CE, 0x0E00)  # rsb lr, lr, #0
    label(STORE)
    data(2, 0xE9DD, 0x2301, 0xF842, 0xEB04, 0x9201)  # ldrd r2, r3, [sp, #4]; str lr, [r2], #4; str r2, [sp, #4]
    data(2, 0x429A)  # cmp r2, r3
    bne_w(ROW)
    data(2, 0xB00A, 0xE8BD, 0x0F00, 0x2000)  # add sp, #40; ldmia.w sp!, {r8-r11}; movs r0, #0
    b(END)
    label(ADD)
    data(2, 0x9A01, 0x6813, 0x449E)  # ldr r2, [sp, #4]; ldr r3, [r2]; add lr, r3
    data(2, 0xF30E, 0x0E1E, 0xF1CE, 0x0E00, 0xF30E, 0x0E1E)  # ssat lr, #31, lr; rsb lr, lr, #0; ssat lr, #31, lr
    data(2, 0xF1CE, 0x0E00)  # rsb lr, lr, #0
    b(STORE)
    label(END)


@micropython.asm_thumb
def _rows4(r0):
    # [sp]: scale, result, end of results, vector, end of its whole groups, its end, bias or 0, half of a unit, shift
    # and mode, way into the code for a short group. r0: weights, r1: vector, r12: a group's sum, r14: the row's
    data(2, 0xE92D, 0x0F00, 0xE8B0, 0x07FE)  # stmdb sp!, {r8-r11}; ldmia.w r0!, {r1-r10}
    data(2, 0xE92D, 0x07FE, 0x6800)  # stmdb sp!, {r1-r10}; ldr r0, [r0]
    data(2, 0xF8DD, 0x8000)  # ldr.w r8, [sp]
    data(2, 0xF04F, 0x1BF0)  # mov.w r11, #0xF000F0
    label(ROW)
    data(2, 0xE9DD, 0x2E06, 0x2A00)  # ldrd r2, lr, [sp, #24]; cmp r2, #0
    beq(UNBIASED)
    data(2, 0xCA08, 0x449E, 0x9206)  # ldmia r2!, {r3}; add lr, r3; str r2, [sp, #24]
    label(UNBIASED)
    data(2, 0xE9DD, 0x1203, 0x4291)  # ldrd r1, r2, [sp, #12]; cmp r1, r2
    bcc(GROUP)
    label(SHORT)
    data(2, 0xF851, 0xCB04, 0x9A09, 0x07D3)  # ldr r12, [r1], #4; ldr r2, [sp, #36]; lsls r3, r2, #31
    beq(SIXTEENS)
    data(2, 0xC808, 0xC9F0)  # ldmia r0!, {r3}; ldmia r1!, {r4-r7}
    data(2, 0xEA0B, 0x1A03, 0xFB2A, 0xCC04)  # and.w r10, r11, r3, lsl #4; smlad r12, r10, r4, r12
    data(2, 0xEA0B, 0x0A03, 0xFB2A, 0xCC05)  # and.w r10, r11, r3; smlad r12, r10, r5, r12
    data(2, 0xEA0B, 0x1A13, 0xFB2A, 0xCC06)  # and.w r10, r11, r3, lsr #4; smlad r12, r10, r6, r12
    data(2, 0xEA0B, 0x2A13, 0xFB2A, 0xCC07, 0x3A01)  # and.w r10, r11, r3, lsr #8; smlad r12, r10, r7, r12; subs r2, #1
    label(SIXTEENS)
    data(2, 0x4497)  # add pc, r2
    label(GROUP)
    data(2, 0xF851, 0xCB04)  # ldr r12, [r1], #4
    data(2, 0xC80C, 0xC9F0, 0xEA0B, 0x1A02)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; and.w r10, r11, r2, lsl #4
    data(2, 0xFB2A, 0xCC04, 0xEA0B, 0x0A02)  # smlad r12, r10, r4, r12; and.w r10, r11, r2
    data(2, 0xFB2A, 0xCC05, 0xEA0B, 0x1A12)  # smlad r12, r10, r5, r12; and.w r10, r11, r2, lsr #4
    data(2, 0xFB2A, 0xCC06, 0xEA0B, 0x2A12)  # smlad r12, r10, r6, r12; and.w r10, r11, r2, lsr #8
    data(2, 0xFB2A, 0xCC07, 0xC9F0)  # smlad r12, r10, r7, r12; ldmia r1!, {r4-r7}
    data(2, 0xEA0B, 0x1A03, 0xFB2A, 0xCC04)  # and.w r10, r11, r3, lsl #4; smlad r12, r10, r4, r12
    data(2, 0xEA0B, 0x0A03, 0xFB2A, 0xCC05)  # and.w r10, r11, r3; smlad r12, r10, r5, r12
    data(2, 0xEA0B, 0x1A13, 0xFB2A, 0xCC06)  # and.w r10, r11, r3, lsr #4; smlad r12, r10, r6, r12
    data(2, 0xEA0B, 0x2A13, 0xFB2A, 0xCC07)  # and.w r10, r11, r3, lsr #8; smlad r12, r10, r7, r12
    data(2, 0xC80C, 0xC9F0, 0xEA0B, 0x1A02)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; and.w r10, r11, r2, lsl #4
    data(2, 0xFB2A, 0xCC04, 0xEA0B, 0x0A02)  # smlad r12, r10, r4, r12; and.w r10, r11, r2
    data(2, 0xFB2A, 0xCC05, 0xEA0B, 0x1A12)  # smlad r12, r10, r5, r12; and.w r10, r11, r2, lsr #4
    data(2, 0xFB2A, 0xCC06, 0xEA0B, 0x2A12)  # smlad r12, r10, r6, r12; and.w r10, r11, r2, lsr #8
    data(2, 0xFB2A, 0xCC07, 0xC9F0)  # smlad r12, r10, r7, r12; ldmia r1!, {r4-r7}
    data(2, 0xEA0B, 0x1A03, 0xFB2A, 0xCC04)  # and.w r10, r11, r3, lsl #4; smlad r12, r10, r4, r12
    data(2, 0xEA0B, 0x0A03, 0xFB2A, 0xCC05)  # and.w r10, r11, r3; smlad r12, r10, r5, r12
    data(2, 0xEA0B, 0x1A13, 0xFB2A, 0xCC06)  # and.w r10, r11, r3, lsr #4; smlad r12, r10, r6, r12
    data(2, 0xEA0B, 0x2A13, 0xFB2A, 0xCC07)  # and.w r10, r11, r3, lsr #8; smlad r12, r10, r7, r12
    data(2, 0xC80C, 0xC9F0, 0xEA0B, 0x1A02)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; and.w r10, r11, r2, lsl #4
    data(2, 0xFB2A, 0xCC04, 0xEA0B, 0x0A02)  # smlad r12, r10, r4, r12; and.w r10, r11, r2
    data(2, 0xFB2A, 0xCC05, 0xEA0B, 0x1A12)  # smlad r12, r10, r5, r12; and.w r10, r11, r2, lsr #4
    data(2, 0xFB2A, 0xCC06, 0xEA0B, 0x2A12)  # smlad r12, r10, r6, r12; and.w r10, r11, r2, lsr #8
    data(2, 0xFB2A, 0xCC07, 0xC9F0)  # smlad r12, r10, r7, r12; ldmia r1!, {r4-r7}
    data(2, 0xEA0B, 0x1A03, 0xFB2A, 0xCC04)  # and.w r10, r11, r3, lsl #4; smlad r12, r10, r4, r12
    data(2, 0xEA0B, 0x0A03, 0xFB2A, 0xCC05)  # and.w r10, r11, r3; smlad r12, r10, r5, r12
    data(2, 0xEA0B, 0x1A13, 0xFB2A, 0xCC06)  # and.w r10, r11, r3, lsr #4; smlad r12, r10, r6, r12
    data(2, 0xEA0B, 0x2A13, 0xFB2A, 0xCC07)  # and.w r10, r11, r3, lsr #8; smlad r12, r10, r7, r12
    data(2, 0xC80C, 0xC9F0, 0xEA0B, 0x1A02)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; and.w r10, r11, r2, lsl #4
    data(2, 0xFB2A, 0xCC04, 0xEA0B, 0x0A02)  # smlad r12, r10, r4, r12; and.w r10, r11, r2
    data(2, 0xFB2A, 0xCC05, 0xEA0B, 0x1A12)  # smlad r12, r10, r5, r12; and.w r10, r11, r2, lsr #4
    data(2, 0xFB2A, 0xCC06, 0xEA0B, 0x2A12)  # smlad r12, r10, r6, r12; and.w r10, r11, r2, lsr #8
    data(2, 0xFB2A, 0xCC07, 0xC9F0)  # smlad r12, r10, r7, r12; ldmia r1!, {r4-r7}
    data(2, 0xEA0B, 0x1A03, 0xFB2A, 0xCC04)  # and.w r10, r11, r3, lsl #4; smlad r12, r10, r4, r12
    data(2, 0xEA0B, 0x0A03, 0xFB2A, 0xCC05)  # and.w r10, r11, r3; smlad r12, r10, r5, r12
    data(2, 0xEA0B, 0x1A13, 0xFB2A, 0xCC06)  # and.w r10, r11, r3, lsr #4; smlad r12, r10, r6, r12
    data(2, 0xEA0B, 0x2A13, 0xFB2A, 0xCC07)  # and.w r10, r11, r3, lsr #8; smlad r12, r10, r7, r12
    data(2, 0xF838, 0x2B02, 0x0412, 0xFB5C, 0xEE02)  # ldrh r2, [r8], #2; lsls r2, r2, #16; smmla lr, r12, r2, lr
    data(2, 0xE9DD, 0x2304, 0x4291)  # ldrd r2, r3, [sp, #16]; cmp r1, r2
    bcc_w(GROUP)
    data(2, 0x4299)  # cmp r1, r3
    bcc_w(SHORT)
    data(2, 0x9A08, 0xFA4E, 0xFE02, 0x0052)  # ldr r2, [sp, #32]; asr.w lr, lr, r2; lsls r2, r2, #1
    bcs(ADD)
    bmi(STORE)
    data(2, 0xF30E, 0x0E0F, 0xF1CE, 0x0E00, 0xF30E, 0x0E0F)  # ssat lr, #16, lr; rsb lr, lr, #0; ssat lr, #16, lr
    data(2, 0xF1CE, 0x0E00)  # rsb lr, lr, #0
    label(STORE)
    data(2, 0xE9DD, 0x2301, 0xF842, 0xEB04, 0x9201)  # ldrd r2, r3, [sp, #4]; str lr, [r2], #4; str r2, [sp, #4]
    data(2, 0x429A)  # cmp r2, r3
    bne_w(ROW)
    data(2, 0xB00A, 0xE8BD, 0x0F00, 0x2000)  # add sp, #40; ldmia.w sp!, {r8-r11}; movs r0, #0
    b(END)
    label(ADD)
    data(2, 0x9A01, 0x6813, 0x449E)  # ldr r2, [sp, #4]; ldr r3, [r2]; add lr, r3
    data(2, 0xF30E, 0x0E1E, 0xF1CE, 0x0E00, 0xF30E, 0x0E1E)  # ssat lr, #31, lr; rsb lr, lr, #0; ssat lr, #31, lr
    data(2, 0xF1CE, 0x0E00)  # rsb lr, lr, #0
    b(STORE)
    label(END)



# Attention


@micropython.viper
def attend(y, q, keys, values, s, t, p):
    if ptr32(p)[1] & 7 != 0:
        _viper.attend(y, q, keys, values, s, t, p)
    else:
        _heads(_sums, y, q, keys, values, s, t, p)


@micropython.asm_thumb
def _sums(r0):
    # As in thumb_kernels.py. The numbers lose their bias by an exclusive or. A probability may be 32768, which 16 bits
    # hold only as a negative: those are negated, and so are their sums
    data(2, 0xE92D, 0x0F00, 0xE890, 0x00FE)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r1-r7}
    data(2, 0xE92D, 0x00FE, 0x46BE, 0xF04F, 0x2A80)  # stmdb sp!, {r1-r7}; mov lr, r7; mov.w r10, #0x80008000
    data(2, 0x4273, 0xE9DD, 0x0B00)  # rsbs r3, r6, #0; ldrd r0, r11, [sp]
    label(BEGIN)
    data(2, 0xC008, 0x4558)  # stmia r0!, {r3}; cmp r0, r11
    bne(BEGIN)
    label(EIGHT)
    data(2, 0x9903, 0xC930, 0xEAC4, 0x4405)  # ldr r1, [sp, #12]; ldmia r1!, {r4, r5}; pkhbt r4, r4, r5, lsl #16
    data(2, 0xC960, 0xEAC5, 0x4506)  # ldmia r1!, {r5, r6}; pkhbt r5, r5, r6, lsl #16
    data(2, 0xC9C0, 0xEAC6, 0x4607, 0xC984)  # ldmia r1!, {r6, r7}; pkhbt r6, r6, r7, lsl #16; ldmia r1!, {r2, r7}
    data(2, 0xEAC2, 0x4707, 0x9103)  # pkhbt r7, r2, r7, lsl #16; str r1, [sp, #12]
    data(2, 0x9A05, 0x2A00)  # ldr r2, [sp, #20]; cmp r2, #0
    beq(WHOLE)
    data(2, 0x2200, 0xFAD2, 0xF404, 0xFAD2, 0xF505)  # movs r2, #0; ssub16 r4, r2, r4; ssub16 r5, r2, r5
    data(2, 0xFAD2, 0xF606, 0xFAD2, 0xF707)  # ssub16 r6, r2, r6; ssub16 r7, r2, r7
    label(WHOLE)
    data(2, 0x9902, 0xF101, 0x0310, 0x9302)  # ldr r1, [sp, #8]; add.w r3, r1, #16; str r3, [sp, #8]
    data(2, 0x9800)  # ldr r0, [sp]
    label(ROW)
    data(2, 0xF8D0, 0xC000, 0xE8B1, 0x030C)  # ldr.w r12, [r0]; ldmia.w r1!, {r2, r3, r8, r9}
    data(2, 0xEA82, 0x020A, 0xFB22, 0xCC04)  # eor.w r2, r2, r10; smlad r12, r2, r4, r12
    data(2, 0xEA83, 0x030A, 0xFB23, 0xCC05)  # eor.w r3, r3, r10; smlad r12, r3, r5, r12
    data(2, 0xEA88, 0x080A, 0xFB28, 0xCC06)  # eor.w r8, r8, r10; smlad r12, r8, r6, r12
    data(2, 0xEA89, 0x090A, 0xFB29, 0xCC07)  # eor.w r9, r9, r10; smlad r12, r9, r7, r12
    data(2, 0xF840, 0xCB04, 0x4471, 0x4558)  # str r12, [r0], #4; add r1, lr; cmp r0, r11
    bne(ROW)
    data(2, 0x9A04, 0x3A01, 0x9204)  # ldr r2, [sp, #16]; subs r2, #1; str r2, [sp, #16]
    bne(EIGHT)
    data(2, 0x9A05, 0x2A00)  # ldr r2, [sp, #20]; cmp r2, #0
    beq(END)
    data(2, 0x9800)  # ldr r0, [sp]
    label(EACH)
    data(2, 0x6801, 0x4249, 0x13C9, 0xF301, 0x010F)  # ldr r1, [r0]; rsbs r1, r1, #0; asrs r1, r1, #15; ssat r1, #16, r1
    data(2, 0x4249, 0xF301, 0x010F, 0x4249)  # rsbs r1, r1, #0; ssat r1, #16, r1; rsbs r1, r1, #0
    data(2, 0xC002, 0x4558)  # stmia r0!, {r1}; cmp r0, r11
    bne(EACH)
    label(END)
    data(2, 0xB007, 0xE8BD, 0x0F00, 0x2000)  # add sp, #28; ldmia.w sp!, {r8-r11}; movs r0, #0
