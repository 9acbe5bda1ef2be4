"""The matrix and attention kernels in Thumb-2 assembler, for any Cortex-M3 and up; the same results to the bit.

How it works (docs/kernels.md has the measurements):
* A vector is packed group by group: -128 sum(x) (int8) or -8 sum(x) (int4), from which the group's accumulator
  starts, then its elements as words, eight to an `ldm`.
* A word W of weights is multiplied as it is, then shifted: w0 x0 + w1 x1 = W x0 + (W >> 8) (x1 - 256 x0), and so on,
  modulo 2^32. So a weight costs a shift and an `mla`, and the first of a word no shift. Packing subtracts.
* The code for a group is equal pieces in a row; a row's last group, if short, is entered further on.
* A 15-bit scale goes 16 bits up, so that the high word of the product is what is wanted.
* Instructions that MicroPython's assembler lacks are numbers. The comment on each line says the same in assembler
  language; tests/test_asm_kernels.py compares the two.
* A function is called with one array, filled by viper code: the assembler takes four arguments at most, and an address
  past 2^30 would be an object. r8 to r11 are the caller's, r14 is free, r0 is a small number at the end.
"""

from array import array

import micropython
from micropython import const

from . import viper_kernels as _viper

NAME = "thumb"

_job = array("i", bytes(44))
_last = array("i", bytes(32))
_soft = array("i", bytes(28))

_GELU = const(2056)
_RSQRT = const(4112)


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
    row = padded + groups << 2  # bytes of a block, packed
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
    piece = 50  # bytes of code for 8 weights
    if d[10] == 4:
        run = _rows4
        piece = 52
    full = row
    rest = padded & 63
    if rest > 0:
        full -= rest + 1 << 2
        job[9] = (8 - (rest >> 3)) * piece + 2
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
    data(2, 0x44A4, 0x44AC, 0x44B4, 0x44BC, 0x44C4)  # add r12, r4; add r12, r5; add r12, r6; add r12, r7; add r12, r8
    data(2, 0x44CC, 0x44D4, 0x44DC)  # add r12, r9; add r12, r10; add r12, r11
    data(2, 0xEBA7, 0x2706, 0xEBA6, 0x2605)  # sub.w r7, r7, r6, lsl #8; sub.w r6, r6, r5, lsl #8
    data(2, 0xEBA5, 0x2504, 0xEBAB, 0x2B0A)  # sub.w r5, r5, r4, lsl #8; sub.w r11, r11, r10, lsl #8
    data(2, 0xEBAA, 0x2A09, 0xEBA9, 0x2908)  # sub.w r10, r10, r9, lsl #8; sub.w r9, r9, r8, lsl #8
    data(2, 0xE8A1, 0x0FF0)  # stm r1!, {r4-r11}
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
    data(2, 0x44A4, 0x44AC, 0x44B4, 0x44BC, 0x44C4)  # add r12, r4; add r12, r5; add r12, r6; add r12, r7; add r12, r8
    data(2, 0x44CC, 0x44D4, 0x44DC)  # add r12, r9; add r12, r10; add r12, r11
    data(2, 0xEBAB, 0x1B0A, 0xEBAA, 0x1A09)  # sub.w r11, r11, r10, lsl #4; sub.w r10, r10, r9, lsl #4
    data(2, 0xEBA9, 0x1908, 0xEBA8, 0x1807)  # sub.w r9, r9, r8, lsl #4; sub.w r8, r8, r7, lsl #4
    data(2, 0xEBA7, 0x1706, 0xEBA6, 0x1605)  # sub.w r7, r7, r6, lsl #4; sub.w r6, r6, r5, lsl #4
    data(2, 0xEBA5, 0x1504)  # sub.w r5, r5, r4, lsl #4
    data(2, 0xE8A1, 0x0FF0)  # stm r1!, {r4-r11}
    data(2, 0x3A01)  # subs r2, #1
    beq(SUM)
    data(2, 0xF1BE, 0x0E01)  # subs.w lr, lr, #1
    bne(EIGHT)
    label(SUM)
    data(2, 0xEA4F, 0x0CCC, 0xF1CC, 0x0C00)  # lsl.w r12, r12, #3; rsb r12, r12, #0
    data(2, 0x9C00, 0xF8C4, 0xC000, 0x2A00)  # ldr r4, [sp]; str.w r12, [r4]; cmp r2, #0
    bne(GROUP)
    data(2, 0xB002, 0xE8BD, 0x0F00, 0x2000)  # add sp, #8; ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.asm_thumb
def _rows8(r0):
    # [sp]: scale, result, end of results, vector, end of its whole groups, its end, bias or 0, half of a unit, shift
    # and mode, way into the code for a short group. r0: weights, r1: vector, r12: a group's sum, r14: the row's
    data(2, 0xE92D, 0x0F00, 0xE8B0, 0x07FE)  # stmdb sp!, {r8-r11}; ldmia.w r0!, {r1-r10}
    data(2, 0xE92D, 0x07FE, 0x6800)  # stmdb sp!, {r1-r10}; ldr r0, [r0]
    label(ROW)
    data(2, 0xE9DD, 0x2E06, 0x2A00)  # ldrd r2, lr, [sp, #24]; cmp r2, #0
    beq(UNBIASED)
    data(2, 0xCA08, 0x449E, 0x9206)  # ldmia r2!, {r3}; add lr, r3; str r2, [sp, #24]
    label(UNBIASED)
    data(2, 0xE9DD, 0x1203, 0x4291)  # ldrd r1, r2, [sp, #12]; cmp r1, r2
    bcc(GROUP)
    label(SHORT)
    data(2, 0xF851, 0xCB04, 0x9A09, 0x4497)  # ldr r12, [r1], #4; ldr r2, [sp, #36]; add pc, r2
    label(GROUP)
    data(2, 0xF851, 0xCB04)  # ldr r12, [r1], #4
    data(2, 0xC80C, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2, r3}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0A12, 0xFB02, 0xCC05, 0x0A12)  # lsrs r2, r2, #8; mla r12, r2, r5, r12; lsrs r2, r2, #8
    data(2, 0xFB02, 0xCC06, 0x0A12, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #8; mla r12, r2, r7, r12
    data(2, 0xFB03, 0xCC08, 0x0A1B, 0xFB03, 0xCC09)  # mla r12, r3, r8, r12; lsrs r3, r3, #8; mla r12, r3, r9, r12
    data(2, 0x0A1B, 0xFB03, 0xCC0A, 0x0A1B)  # lsrs r3, r3, #8; mla r12, r3, r10, r12; lsrs r3, r3, #8
    data(2, 0xFB03, 0xCC0B)  # mla r12, r3, r11, r12
    data(2, 0xC80C, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2, r3}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0A12, 0xFB02, 0xCC05, 0x0A12)  # lsrs r2, r2, #8; mla r12, r2, r5, r12; lsrs r2, r2, #8
    data(2, 0xFB02, 0xCC06, 0x0A12, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #8; mla r12, r2, r7, r12
    data(2, 0xFB03, 0xCC08, 0x0A1B, 0xFB03, 0xCC09)  # mla r12, r3, r8, r12; lsrs r3, r3, #8; mla r12, r3, r9, r12
    data(2, 0x0A1B, 0xFB03, 0xCC0A, 0x0A1B)  # lsrs r3, r3, #8; mla r12, r3, r10, r12; lsrs r3, r3, #8
    data(2, 0xFB03, 0xCC0B)  # mla r12, r3, r11, r12
    data(2, 0xC80C, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2, r3}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0A12, 0xFB02, 0xCC05, 0x0A12)  # lsrs r2, r2, #8; mla r12, r2, r5, r12; lsrs r2, r2, #8
    data(2, 0xFB02, 0xCC06, 0x0A12, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #8; mla r12, r2, r7, r12
    data(2, 0xFB03, 0xCC08, 0x0A1B, 0xFB03, 0xCC09)  # mla r12, r3, r8, r12; lsrs r3, r3, #8; mla r12, r3, r9, r12
    data(2, 0x0A1B, 0xFB03, 0xCC0A, 0x0A1B)  # lsrs r3, r3, #8; mla r12, r3, r10, r12; lsrs r3, r3, #8
    data(2, 0xFB03, 0xCC0B)  # mla r12, r3, r11, r12
    data(2, 0xC80C, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2, r3}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0A12, 0xFB02, 0xCC05, 0x0A12)  # lsrs r2, r2, #8; mla r12, r2, r5, r12; lsrs r2, r2, #8
    data(2, 0xFB02, 0xCC06, 0x0A12, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #8; mla r12, r2, r7, r12
    data(2, 0xFB03, 0xCC08, 0x0A1B, 0xFB03, 0xCC09)  # mla r12, r3, r8, r12; lsrs r3, r3, #8; mla r12, r3, r9, r12
    data(2, 0x0A1B, 0xFB03, 0xCC0A, 0x0A1B)  # lsrs r3, r3, #8; mla r12, r3, r10, r12; lsrs r3, r3, #8
    data(2, 0xFB03, 0xCC0B)  # mla r12, r3, r11, r12
    data(2, 0xC80C, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2, r3}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0A12, 0xFB02, 0xCC05, 0x0A12)  # lsrs r2, r2, #8; mla r12, r2, r5, r12; lsrs r2, r2, #8
    data(2, 0xFB02, 0xCC06, 0x0A12, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #8; mla r12, r2, r7, r12
    data(2, 0xFB03, 0xCC08, 0x0A1B, 0xFB03, 0xCC09)  # mla r12, r3, r8, r12; lsrs r3, r3, #8; mla r12, r3, r9, r12
    data(2, 0x0A1B, 0xFB03, 0xCC0A, 0x0A1B)  # lsrs r3, r3, #8; mla r12, r3, r10, r12; lsrs r3, r3, #8
    data(2, 0xFB03, 0xCC0B)  # mla r12, r3, r11, r12
    data(2, 0xC80C, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2, r3}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0A12, 0xFB02, 0xCC05, 0x0A12)  # lsrs r2, r2, #8; mla r12, r2, r5, r12; lsrs r2, r2, #8
    data(2, 0xFB02, 0xCC06, 0x0A12, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #8; mla r12, r2, r7, r12
    data(2, 0xFB03, 0xCC08, 0x0A1B, 0xFB03, 0xCC09)  # mla r12, r3, r8, r12; lsrs r3, r3, #8; mla r12, r3, r9, r12
    data(2, 0x0A1B, 0xFB03, 0xCC0A, 0x0A1B)  # lsrs r3, r3, #8; mla r12, r3, r10, r12; lsrs r3, r3, #8
    data(2, 0xFB03, 0xCC0B)  # mla r12, r3, r11, r12
    data(2, 0xC80C, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2, r3}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0A12, 0xFB02, 0xCC05, 0x0A12)  # lsrs r2, r2, #8; mla r12, r2, r5, r12; lsrs r2, r2, #8
    data(2, 0xFB02, 0xCC06, 0x0A12, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #8; mla r12, r2, r7, r12
    data(2, 0xFB03, 0xCC08, 0x0A1B, 0xFB03, 0xCC09)  # mla r12, r3, r8, r12; lsrs r3, r3, #8; mla r12, r3, r9, r12
    data(2, 0x0A1B, 0xFB03, 0xCC0A, 0x0A1B)  # lsrs r3, r3, #8; mla r12, r3, r10, r12; lsrs r3, r3, #8
    data(2, 0xFB03, 0xCC0B)  # mla r12, r3, r11, r12
    data(2, 0xC80C, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2, r3}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0A12, 0xFB02, 0xCC05, 0x0A12)  # lsrs r2, r2, #8; mla r12, r2, r5, r12; lsrs r2, r2, #8
    data(2, 0xFB02, 0xCC06, 0x0A12, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #8; mla r12, r2, r7, r12
    data(2, 0xFB03, 0xCC08, 0x0A1B, 0xFB03, 0xCC09)  # mla r12, r3, r8, r12; lsrs r3, r3, #8; mla r12, r3, r9, r12
    data(2, 0x0A1B, 0xFB03, 0xCC0A, 0x0A1B)  # lsrs r3, r3, #8; mla r12, r3, r10, r12; lsrs r3, r3, #8
    data(2, 0xFB03, 0xCC0B)  # mla r12, r3, r11, r12
    data(2, 0x9B00, 0xF833, 0x2B02, 0x9300, 0x0412)  # ldr r3, [sp]; ldrh r2, [r3], #2; str r3, [sp]; lsls r2, r2, #16
    data(2, 0xFB8C, 0x3202, 0x4496)  # smull r3, r2, r12, r2; add lr, r2
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
    label(ROW)
    data(2, 0xE9DD, 0x2E06, 0x2A00)  # ldrd r2, lr, [sp, #24]; cmp r2, #0
    beq(UNBIASED)
    data(2, 0xCA08, 0x449E, 0x9206)  # ldmia r2!, {r3}; add lr, r3; str r2, [sp, #24]
    label(UNBIASED)
    data(2, 0xE9DD, 0x1203, 0x4291)  # ldrd r1, r2, [sp, #12]; cmp r1, r2
    bcc(GROUP)
    label(SHORT)
    data(2, 0xF851, 0xCB04, 0x9A09, 0x4497)  # ldr r12, [r1], #4; ldr r2, [sp, #36]; add pc, r2
    label(GROUP)
    data(2, 0xF851, 0xCB04)  # ldr r12, [r1], #4
    data(2, 0xC804, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0912, 0xFB02, 0xCC05, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r5, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC06, 0x0912, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #4; mla r12, r2, r7, r12
    data(2, 0x0912, 0xFB02, 0xCC08, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r8, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC09, 0x0912, 0xFB02, 0xCC0A)  # mla r12, r2, r9, r12; lsrs r2, r2, #4; mla r12, r2, r10, r12
    data(2, 0x0912, 0xFB02, 0xCC0B)  # lsrs r2, r2, #4; mla r12, r2, r11, r12
    data(2, 0xC804, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0912, 0xFB02, 0xCC05, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r5, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC06, 0x0912, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #4; mla r12, r2, r7, r12
    data(2, 0x0912, 0xFB02, 0xCC08, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r8, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC09, 0x0912, 0xFB02, 0xCC0A)  # mla r12, r2, r9, r12; lsrs r2, r2, #4; mla r12, r2, r10, r12
    data(2, 0x0912, 0xFB02, 0xCC0B)  # lsrs r2, r2, #4; mla r12, r2, r11, r12
    data(2, 0xC804, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0912, 0xFB02, 0xCC05, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r5, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC06, 0x0912, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #4; mla r12, r2, r7, r12
    data(2, 0x0912, 0xFB02, 0xCC08, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r8, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC09, 0x0912, 0xFB02, 0xCC0A)  # mla r12, r2, r9, r12; lsrs r2, r2, #4; mla r12, r2, r10, r12
    data(2, 0x0912, 0xFB02, 0xCC0B)  # lsrs r2, r2, #4; mla r12, r2, r11, r12
    data(2, 0xC804, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0912, 0xFB02, 0xCC05, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r5, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC06, 0x0912, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #4; mla r12, r2, r7, r12
    data(2, 0x0912, 0xFB02, 0xCC08, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r8, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC09, 0x0912, 0xFB02, 0xCC0A)  # mla r12, r2, r9, r12; lsrs r2, r2, #4; mla r12, r2, r10, r12
    data(2, 0x0912, 0xFB02, 0xCC0B)  # lsrs r2, r2, #4; mla r12, r2, r11, r12
    data(2, 0xC804, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0912, 0xFB02, 0xCC05, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r5, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC06, 0x0912, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #4; mla r12, r2, r7, r12
    data(2, 0x0912, 0xFB02, 0xCC08, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r8, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC09, 0x0912, 0xFB02, 0xCC0A)  # mla r12, r2, r9, r12; lsrs r2, r2, #4; mla r12, r2, r10, r12
    data(2, 0x0912, 0xFB02, 0xCC0B)  # lsrs r2, r2, #4; mla r12, r2, r11, r12
    data(2, 0xC804, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0912, 0xFB02, 0xCC05, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r5, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC06, 0x0912, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #4; mla r12, r2, r7, r12
    data(2, 0x0912, 0xFB02, 0xCC08, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r8, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC09, 0x0912, 0xFB02, 0xCC0A)  # mla r12, r2, r9, r12; lsrs r2, r2, #4; mla r12, r2, r10, r12
    data(2, 0x0912, 0xFB02, 0xCC0B)  # lsrs r2, r2, #4; mla r12, r2, r11, r12
    data(2, 0xC804, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0912, 0xFB02, 0xCC05, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r5, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC06, 0x0912, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #4; mla r12, r2, r7, r12
    data(2, 0x0912, 0xFB02, 0xCC08, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r8, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC09, 0x0912, 0xFB02, 0xCC0A)  # mla r12, r2, r9, r12; lsrs r2, r2, #4; mla r12, r2, r10, r12
    data(2, 0x0912, 0xFB02, 0xCC0B)  # lsrs r2, r2, #4; mla r12, r2, r11, r12
    data(2, 0xC804, 0xE8B1, 0x0FF0, 0xFB02, 0xCC04)  # ldmia r0!, {r2}; ldmia.w r1!, {r4-r11}; mla r12, r2, r4, r12
    data(2, 0x0912, 0xFB02, 0xCC05, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r5, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC06, 0x0912, 0xFB02, 0xCC07)  # mla r12, r2, r6, r12; lsrs r2, r2, #4; mla r12, r2, r7, r12
    data(2, 0x0912, 0xFB02, 0xCC08, 0x0912)  # lsrs r2, r2, #4; mla r12, r2, r8, r12; lsrs r2, r2, #4
    data(2, 0xFB02, 0xCC09, 0x0912, 0xFB02, 0xCC0A)  # mla r12, r2, r9, r12; lsrs r2, r2, #4; mla r12, r2, r10, r12
    data(2, 0x0912, 0xFB02, 0xCC0B)  # lsrs r2, r2, #4; mla r12, r2, r11, r12
    data(2, 0x9B00, 0xF833, 0x2B02, 0x9300, 0x0412)  # ldr r3, [sp]; ldrh r2, [r3], #2; str r3, [sp]; lsls r2, r2, #16
    data(2, 0xEA4F, 0x1C0C, 0xFB8C, 0x3202, 0x4496)  # lsl.w r12, r12, #4; smull r3, r2, r12, r2; add lr, r2
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



# Vectors


@micropython.viper
def embed(x: ptr32, buf: ptr8, d: ptr32, token: int, mantissa: int, shift: int):
    jobs = _job
    job = ptr32(jobs)
    job[0] = int(x)
    job[1] = int(buf) + d[0] + token * d[5]
    job[2] = int(buf) + d[1] + (token * d[6] << 1)
    job[3] = d[4]
    job[4] = mantissa
    job[5] = shift
    _embed(jobs)


@micropython.asm_thumb
def _embed(r0):
    # r0: results, r1: weights, r2: scales, r3: how many are left, r4: mantissa, r8: shift, r9: half of a unit, r10: the
    # group's scale, r11: how many are left of the group
    data(2, 0xE92D, 0x0F00, 0xE890, 0x011F, 0x2501)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r0-r4, r8}; movs r5, #1
    data(2, 0xFA05, 0xF508, 0xEA4F, 0x0955, 0xF06F, 0x4E40)  # lsl.w r5, r5, r8; lsr.w r9, r5, #1; mvn lr, #0xC0000000
    label(GROUP)
    data(2, 0xF832, 0xAB02, 0xEA4F, 0x2A0A, 0xF04F, 0x0B40)  # ldrh r10, [r2], #2; lsl.w r10, r10, #8; mov.w r11, #64
    data(2, 0x2B40, 0xBFB8, 0x469B, 0xEBA3, 0x030B)  # cmp r3, #64; it lt; movlt r11, r3; sub.w r3, r3, r11
    label(EACH)
    data(2, 0xF811, 0x5B01, 0x3D80, 0xFB05, 0xF50A)  # ldrb r5, [r1], #1; subs r5, #128; mul r5, r5, r10
    data(2, 0xFB85, 0x5604, 0x0C2D, 0xEA45, 0x4506)  # smull r5, r6, r5, r4; lsrs r5, r5, #16; orr.w r5, r5, r6, lsl #16
    data(2, 0x444D, 0xFA45, 0xF508, 0xF305, 0x051E)  # add r5, r9; asr.w r5, r5, r8; ssat r5, #31, r5
    data(2, 0xEB05, 0x060E, 0xEBA5, 0x75E6, 0xC020)  # add.w r6, r5, lr; sub.w r5, r5, r6, asr #31; stmia r0!, {r5}
    data(2, 0xF1BB, 0x0B01)  # subs.w r11, r11, #1
    bne(EACH)
    data(2, 0x2B00)  # cmp r3, #0
    bne(GROUP)
    data(2, 0xE8BD, 0x0F00, 0x2000)  # ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.viper
def norm(y: ptr32, x: ptr32, buf: ptr8, t: ptr8, p: ptr32):
    jobs = _job
    job = ptr32(jobs)
    job[0] = int(y)
    job[1] = int(x)
    job[2] = int(p)
    job[3] = int(buf) + p[5]
    job[4] = int(t) + _RSQRT
    _norm(jobs)


@micropython.asm_thumb
def _norm(r0):
    # r0: results, r1: stream, r2: p, r10: weights, r11: table; then r2: count, r7: eps, r8: k, r9: shift
    data(2, 0xE92D, 0x0F00, 0xE890, 0x0C07)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r0-r2, r10, r11}
    data(2, 0xF8D2, 0x8004, 0xF8D2, 0x900C, 0x6917)  # ldr.w r8, [r2, #4]; ldr.w r9, [r2, #12]; ldr r7, [r2, #16]
    data(2, 0xF8D2, 0xE008, 0x6812, 0xB406, 0x2400)  # ldr.w lr, [r2, #8]; ldr r2, [r2]; push {r1, r2}; movs r4, #0
    label(LARGEST)
    data(2, 0xF851, 0x5B04, 0xEA85, 0x76E5)  # ldr r5, [r1], #4; eor.w r6, r5, r5, asr #31
    data(2, 0xEBA6, 0x76E5, 0x4334, 0x3A01)  # sub.w r6, r6, r5, asr #31; orrs r4, r6; subs r2, #1
    bne(LARGEST)
    # r4: by how much the stream is shifted to fit 15 bits, r7: mean square, so far epsilon
    data(2, 0xFAB4, 0xF484, 0xF1D4, 0x0411, 0xBF48, 0x2400)  # clz r4, r4; rsbs.w r4, r4, #17; it mi; movmi r4, #0
    data(2, 0xEB08, 0x0544, 0x2D1F, 0xBF88, 0x251F)  # add.w r5, r8, r4, lsl #1; cmp r5, #31; it hi; movhi r5, #31
    data(2, 0x40EF, 0x9900, 0x9A01)  # lsrs r7, r5; ldr r1, [sp]; ldr r2, [sp, #4]
    label(SQUARES)
    data(2, 0xF851, 0x5B04, 0x4125, 0x436D)  # ldr r5, [r1], #4; asrs r5, r4; muls r5, r5, r5
    data(2, 0xFA25, 0xF508, 0x442F, 0x3A01)  # lsr.w r5, r5, r8; add r7, r5; subs r2, #1
    bne(SQUARES)
    data(2, 0x2F01, 0xBFB8, 0x2701)  # cmp r7, #1; it lt; movlt r7, #1
    data(2, 0xF06F, 0x4540, 0x42AF, 0xBFC8, 0x462F)  # mvn r5, #0xC0000000; cmp r7, r5; it gt; movgt r7, r5
    # m = r7 4^j in [2^28, 2^30); r8: how far the unweighted result is shifted, 30 - j - point
    data(2, 0xFAB7, 0xF587, 0x3D02, 0x086D, 0x006E)  # clz r5, r7; subs r5, #2; lsrs r5, r5, #1; lsls r6, r5, #1
    data(2, 0x40B7, 0xF1C5, 0x081E, 0xEBA8, 0x080E)  # lsls r7, r6; rsb.w r8, r5, #30; sub.w r8, r8, lr
    # one step of Newton's: r6 = 1 / sqrt(m)
    data(2, 0x0DBD, 0x3D40, 0xF83B, 0x5015)  # lsrs r5, r7, #22; subs r5, #64; ldrh.w r5, [r11, r5, lsl #1]
    data(2, 0xFB05, 0xF605, 0x0B76, 0x0BFF)  # mul r6, r5, r5; lsrs r6, r6, #13; lsrs r7, r7, #15
    data(2, 0x437E, 0xF1C6, 0x4680, 0x13B6)  # muls r6, r7, r6; rsb.w r6, r6, #0x40000000; asrs r6, r6, #14
    data(2, 0x436E, 0x1436)  # muls r6, r5, r6; asrs r6, r6, #16
    data(2, 0xEB06, 0x0645, 0xF64F, 0x75FF, 0x42AE)  # add.w r6, r6, r5, lsl #1; movw r5, #65535; cmp r6, r5
    data(2, 0xBFC8, 0x462E)  # it gt; movgt r6, r5
    data(2, 0x2301, 0xFA03, 0xF309, 0x085B)  # movs r3, #1; lsl.w r3, r3, r9; lsrs r3, r3, #1
    data(2, 0xF647, 0x7CFF, 0xBC06)  # movw r12, #32767; pop {r1, r2}
    label(EACH)
    data(2, 0xF851, 0x5B04, 0x4125, 0x4375)  # ldr r5, [r1], #4; asrs r5, r4; muls r5, r6, r5
    data(2, 0xFA45, 0xF508, 0xF93A, 0x7B02, 0xFB05, 0x3507)  # asr.w r5, r5, r8; ldrsh r7, [r10], #2; mla r5, r5, r7, r3
    data(2, 0xFA45, 0xF509, 0xF305, 0x050F, 0xEB05, 0x070C)  # asr.w r5, r5, r9; ssat r5, #16, r5; add.w r7, r5, r12
    data(2, 0xEBA5, 0x75E7, 0xC020, 0x3A01)  # sub.w r5, r5, r7, asr #31; stmia r0!, {r5}; subs r2, #1
    bne(EACH)
    data(2, 0xE8BD, 0x0F00, 0x2000)  # ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.viper
def gated(y: ptr32, t: ptr8, p: ptr32):
    jobs = _job
    job = ptr32(jobs)
    shift = p[2]
    job[0] = int(y)
    job[1] = int(y) + (p[0] << 2)
    job[2] = p[0]
    job[3] = int(t) + p[1]
    job[4] = 0
    job[5] = shift
    if shift < 0:
        job[4] = 0 - shift
        job[5] = 0
    job[6] = p[3]
    _gated(jobs)


@micropython.asm_thumb
def _gated(r0):
    # r0: what is gated, r1: its other half, r2: count, r8: table, r9, r10: shifts, r11: the product's, r12: half of a
    # unit
    data(2, 0xE92D, 0x0F00, 0xE890, 0x0F07, 0x2301)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r0-r2, r8-r11}; movs r3, #1
    data(2, 0xFA03, 0xF30B, 0xEA4F, 0x0C53, 0xF44F, 0x4E80)  # lsl.w r3, r3, r11; lsr.w r12, r3, #1; mov.w lr, #16384
    data(2, 0xF647, 0x73FF)  # movw r3, #32767
    label(EACH)
    data(2, 0x6804, 0xFA04, 0xF50A, 0xFA45, 0xF509)  # ldr r4, [r0]; lsl.w r5, r4, r10; asr.w r5, r5, r9
    data(2, 0xF505, 0x3580, 0xF385, 0x0511, 0x0A2E)  # add.w r5, r5, #65536; usat r5, #17, r5; lsrs r6, r5, #8
    data(2, 0xEB08, 0x0646, 0x8877, 0x8836)  # add.w r6, r8, r6, lsl #1; ldrh r7, [r6, #2]; ldrh r6, [r6]
    data(2, 0x1BBF, 0xB2ED, 0x436F)  # subs r7, r7, r6; uxtb r5, r5; muls r7, r5, r7
    data(2, 0xEB06, 0x2627, 0xFB04, 0xE406, 0x13E4)  # add.w r6, r6, r7, asr #8; mla r4, r4, r6, lr; asrs r4, r4, #15
    data(2, 0xC920, 0xFB04, 0xC405, 0xFA44, 0xF40B)  # ldmia r1!, {r5}; mla r4, r4, r5, r12; asr.w r4, r4, r11
    data(2, 0xF304, 0x040F, 0x18E5, 0xEBA4, 0x74E5)  # ssat r4, #16, r4; adds r5, r4, r3; sub.w r4, r4, r5, asr #31
    data(2, 0xC010, 0x3A01)  # stmia r0!, {r4}; subs r2, #1
    bne(EACH)
    data(2, 0xE8BD, 0x0F00, 0x2000)  # ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.viper
def add_scaled(x, y, factor: int, shift: int, n: int):
    _add_scaled(x, y, factor, (n << 5) + shift)


@micropython.asm_thumb
def _add_scaled(r0, r1, r2, r3):
    data(2, 0xF003, 0x041F, 0x095B, 0x2501, 0x40A5)  # and.w r4, r3, #31; lsrs r3, r3, #5; movs r5, #1; lsls r5, r4
    data(2, 0xEA4F, 0x0C55, 0xF06F, 0x4E40)  # lsr.w r12, r5, #1; mvn lr, #0xC0000000
    label(EACH)
    data(2, 0xC920, 0xFB85, 0x5602, 0x0C2D)  # ldmia r1!, {r5}; smull r5, r6, r5, r2; lsrs r5, r5, #16
    data(2, 0xEA45, 0x4506, 0x4465, 0x4125)  # orr.w r5, r5, r6, lsl #16; add r5, r12; asrs r5, r4
    data(2, 0x6806, 0x19AD, 0xF305, 0x051E)  # ldr r6, [r0]; adds r5, r5, r6; ssat r5, #31, r5
    data(2, 0xEB05, 0x060E, 0xEBA5, 0x75E6, 0xC020)  # add.w r6, r5, lr; sub.w r5, r5, r6, asr #31; stmia r0!, {r5}
    data(2, 0x3B01)  # subs r3, #1
    bne(EACH)
    data(2, 0x2000)  # movs r0, #0


# Recurrence


@micropython.viper
def conv(y: ptr32, x: ptr32, tail: ptr32, buf: ptr8, p: ptr32):
    jobs = _job
    job = ptr32(jobs)
    job[0] = int(y)
    job[1] = int(x)
    job[2] = int(tail)
    job[3] = p[1] - 1
    job[4] = int(buf) + p[2]
    job[5] = int(buf) + p[3]
    job[6] = p[0] << 2
    job[7] = p[4]
    _conv(jobs)


@micropython.asm_thumb
def _conv(r0):
    # r0: results, r1: inputs, r2: inputs before, r3: sum, r4: weights, r5: biases, r8: shift, r9: from row to row of
    # the inputs before, r10: half of a unit. [sp]: rows, end of the results
    data(2, 0xE92D, 0x0F00, 0xE890, 0x017F, 0x46B1)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r0-r6, r8}; mov r9, r6
    data(2, 0x4406, 0xB448, 0x2601, 0xFA06, 0xF608)  # add r6, r0; push {r3, r6}; movs r6, #1; lsl.w r6, r6, r8
    data(2, 0xEA4F, 0x0A56)  # lsr.w r10, r6, #1
    label(EACH)
    data(2, 0xCD08, 0x4694, 0x4696, 0x9F00)  # ldmia r5!, {r3}; mov r12, r2; mov lr, r2; ldr r7, [sp]
    data(2, 0x2F00)  # cmp r7, #0
    beq(NEWEST)
    label(BEFORE)
    data(2, 0xF8DC, 0x6000, 0xF8CE, 0x6000, 0x46E6, 0x44CC)  # ldr.w r6, [r12]; str.w r6, [lr]; mov lr, r12; add r12, r9
    data(2, 0xF934, 0xBB02, 0xFB06, 0x330B, 0x3F01)  # ldrsh r11, [r4], #2; mla r3, r6, r11, r3; subs r7, #1
    bne(BEFORE)
    data(2, 0x680E, 0xF8CE, 0x6000)  # ldr r6, [r1]; str.w r6, [lr]
    label(NEWEST)
    data(2, 0xC940, 0xF934, 0xBB02, 0xFB06, 0x330B)  # ldmia r1!, {r6}; ldrsh r11, [r4], #2; mla r3, r6, r11, r3
    data(2, 0x4453, 0xFA43, 0xF308)  # add r3, r10; asr.w r3, r3, r8
    data(2, 0xF303, 0x030F, 0x425B, 0xF303, 0x030F)  # ssat r3, #16, r3; rsbs r3, r3, #0; ssat r3, #16, r3
    data(2, 0x425B, 0xC008, 0x3204)  # rsbs r3, r3, #0; stmia r0!, {r3}; adds r2, #4
    data(2, 0x9F01, 0x42B8)  # ldr r7, [sp, #4]; cmp r0, r7
    bne(EACH)
    data(2, 0xB002, 0xE8BD, 0x0F00, 0x2000)  # add sp, #8; ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.viper
def recur(h: ptr32, u: ptr32, gates: ptr32, buf: ptr8, t: ptr8, p: ptr32):
    job = ptr32(_job)
    size = p[0] << 2
    job[0] = int(h)
    job[1] = int(u)
    job[2] = int(gates)
    job[3] = int(gates) + size
    job[4] = int(buf) + p[1]
    job[5] = int(t)
    job[6] = p[3]
    job[7] = int(h) + size
    job[8] = p[2]
    _recur(_job)


@micropython.asm_thumb
def _recur(r0):
    # r0: state, r1: u, r2: recurrence gates, r3: input gates, r4: c, r5: tables, r8: shift, r9: half of a unit
    # [sp]: 1 at a text's first token, end of the state
    data(2, 0xE92D, 0x0F00, 0xE890, 0x01FF, 0xB4C0)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r0-r8}; push {r6, r7}
    data(2, 0x2601, 0xFA06, 0xF608, 0xEA4F, 0x0956)  # movs r6, #1; lsl.w r6, r6, r8; lsr.w r9, r6, #1
    label(EACH)
    # r12: the input, times its gate's sigmoid
    data(2, 0xCB40, 0x0076, 0xF506, 0x3680)  # ldmia r3!, {r6}; lsls r6, r6, #1; add.w r6, r6, #65536
    data(2, 0xF386, 0x0611, 0x0A37)  # usat r6, #17, r6; lsrs r7, r6, #8
    data(2, 0xEB05, 0x0747, 0xF8B7, 0xC404)  # add.w r7, r5, r7, lsl #1; ldrh.w r12, [r7, #1028]
    data(2, 0xF8B7, 0x7406, 0xEBA7, 0x070C, 0xB2F6)  # ldrh.w r7, [r7, #1030]; sub.w r7, r7, r12; uxtb r6, r6
    data(2, 0x4377, 0xEB0C, 0x2C27, 0xC940)  # muls r7, r6, r7; add.w r12, r12, r7, asr #8; ldmia r1!, {r6}
    data(2, 0xFB0C, 0xFC06, 0xF50C, 0x4C80)  # mul r12, r12, r6; add.w r12, r12, #16384
    data(2, 0xEA4F, 0x3CEC, 0x9E00, 0x2E00)  # asr.w r12, r12, #15; ldr r6, [sp]; cmp r6, #0
    beq(GOING_ON)
    data(2, 0xEA4F, 0x36CC, 0x444E, 0xFA46, 0xF608)  # lsl.w r6, r12, #15; add r6, r9; asr.w r6, r6, r8
    data(2, 0x3404)  # adds r4, #4
    b(LIMIT)
    label(GOING_ON)
    # r14: the recurrence gate's sigmoid, doubled; r6: times c
    data(2, 0xCA40, 0x0076, 0xF506, 0x3680)  # ldmia r2!, {r6}; lsls r6, r6, #1; add.w r6, r6, #65536
    data(2, 0xF386, 0x0611, 0x0A37)  # usat r6, #17, r6; lsrs r7, r6, #8
    data(2, 0xEB05, 0x0747, 0xF8B7, 0xE404)  # add.w r7, r5, r7, lsl #1; ldrh.w lr, [r7, #1028]
    data(2, 0xF8B7, 0x7406, 0xEBA7, 0x070E, 0xB2F6)  # ldrh.w r7, [r7, #1030]; sub.w r7, r7, lr; uxtb r6, r6
    data(2, 0x4377, 0xEB0E, 0x2E27, 0xEA4F, 0x0E4E)  # muls r7, r6, r7; add.w lr, lr, r7, asr #8; lsl.w lr, lr, #1
    data(2, 0xCC80, 0xFBA7, 0x670E)  # ldmia r4!, {r7}; umull r6, r7, r7, lr
    data(2, 0x0C36, 0xEA46, 0x4607)  # lsrs r6, r6, #16; orr.w r6, r6, r7, lsl #16
    # r14: a, 2 to the -r6; r7: q, 1 - a
    data(2, 0xF3C6, 0x3707, 0xEB05, 0x0787)  # ubfx r7, r6, #12, #8; add.w r7, r5, r7, lsl #2
    data(2, 0xF8D7, 0xE000, 0x687F, 0xEBA7, 0x070E)  # ldr.w lr, [r7]; ldr r7, [r7, #4]; sub.w r7, r7, lr
    data(2, 0xF3C6, 0x0A0B, 0xFB07, 0xF70A)  # ubfx r10, r6, #0, #12; mul r7, r7, r10
    data(2, 0xEB0E, 0x3E27, 0x0D36, 0x2E1F)  # add.w lr, lr, r7, asr #12; lsrs r6, r6, #20; cmp r6, #31
    data(2, 0xBF88, 0x261F, 0xFA2E, 0xFE06)  # it hi; movhi r6, #31; lsr.w lr, lr, r6
    data(2, 0xF04F, 0x7780, 0x3780, 0xEBA7, 0x070E)  # mov.w r7, #0x1000000; adds r7, #128; sub.w r7, r7, lr
    data(2, 0x123F)  # asrs r7, r7, #8
    data(2, 0xF387, 0x0710)  # usat r7, #16, r7
    # r6: (1 - a)(1 + a), then its root
    data(2, 0xF5C7, 0x3600, 0x0876, 0x437E)  # rsb.w r6, r7, #131072; lsrs r6, r6, #1; muls r6, r7, r6
    data(2, 0x0876)  # lsrs r6, r6, #1
    beq(ROOT)
    data(2, 0xFAB6, 0xFA86, 0xF1AA, 0x0A02, 0xEA4F, 0x0A5A)  # clz r10, r6; sub.w r10, r10, #2; lsr.w r10, r10, #1
    data(2, 0xEA4F, 0x0B4A, 0xFA06, 0xF60B, 0xEA4F, 0x5B96)  # lsl.w r11, r10, #1; lsl.w r6, r6, r11; lsr.w r11, r6, #22
    data(2, 0xEB05, 0x0B4B, 0xF8BB, 0xBF90)  # add.w r11, r5, r11, lsl #1; ldrh.w r11, [r11, #3984]
    data(2, 0xFB0B, 0xFE0B, 0xEA4F, 0x3E5E, 0x0BF6)  # mul lr, r11, r11; lsr.w lr, lr, #13; lsrs r6, r6, #15
    data(2, 0xFB0E, 0xFE06, 0xF1CE, 0x4E80)  # mul lr, lr, r6; rsb.w lr, lr, #0x40000000
    data(2, 0xEA4F, 0x3EAE, 0xFB0E, 0xFE0B, 0xEA4F, 0x4E2E)  # asr.w lr, lr, #14; mul lr, lr, r11; asr.w lr, lr, #16
    data(2, 0xEB0E, 0x0E4B, 0xF64F, 0x7BFF, 0x45DE)  # add.w lr, lr, r11, lsl #1; movw r11, #65535; cmp lr, r11
    data(2, 0xBFC8, 0x46DE)  # it gt; movgt lr, r11
    data(2, 0xFB06, 0xF60E, 0xF10A, 0x0A0F, 0xFA46, 0xF60A)  # mul r6, r6, lr; add.w r10, r10, #15; asr.w r6, r6, r10
    data(2, 0xF306, 0x060F)  # ssat r6, #16, r6
    label(ROOT)
    data(2, 0xFB0C, 0x9606, 0xFA46, 0xF608, 0xF8D0, 0xA000)  # mla r6, r12, r6, r9; asr.w r6, r6, r8; ldr.w r10, [r0]
    data(2, 0xFB8A, 0xEB07, 0xF51E, 0x4E00)  # smull lr, r11, r10, r7; adds.w lr, lr, #32768
    data(2, 0xF14B, 0x0B00, 0xEA4F, 0x4E1E)  # adc.w r11, r11, #0; lsr.w lr, lr, #16
    data(2, 0xEA4E, 0x4E0B, 0x4456, 0xEBA6, 0x060E)  # orr.w lr, lr, r11, lsl #16; add r6, r10; sub.w r6, r6, lr
    label(LIMIT)
    data(2, 0xF306, 0x061E, 0xF06F, 0x4740, 0x4437)  # ssat r6, #31, r6; mvn r7, #0xC0000000; add r7, r6
    data(2, 0xEBA6, 0x76E7, 0xC040)  # sub.w r6, r6, r7, asr #31; stmia r0!, {r6}
    data(2, 0x9F01, 0x42B8)  # ldr r7, [sp, #4]; cmp r0, r7
    bne_w(EACH)
    data(2, 0xB002, 0xE8BD, 0x0F00, 0x2000)  # add sp, #8; ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.viper
def gate_state(y: ptr32, h: ptr32, t: ptr8, p: ptr32):
    jobs = _job
    job = ptr32(jobs)
    shift = p[1]
    job[0] = int(y)
    job[1] = int(h)
    job[2] = p[0]
    job[3] = int(y) + (p[0] << 2)
    job[4] = int(t) + _GELU
    job[5] = 0
    job[6] = shift
    if shift < 0:
        job[5] = 0 - shift
        job[6] = 0
    job[7] = p[2]
    _gate_state(jobs)


@micropython.asm_thumb
def _gate_state(r0):
    # r0: results, r1: state, r2: count, r3: branch, r8: table, r9, r10: shifts, r11: the product's, r12: half of a unit
    data(2, 0xE92D, 0x0F00, 0xE890, 0x0F0F, 0x2401)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r0-r3, r8-r11}; movs r4, #1
    data(2, 0xFA04, 0xF40B, 0xEA4F, 0x0C54, 0xF44F, 0x4E80)  # lsl.w r4, r4, r11; lsr.w r12, r4, #1; mov.w lr, #16384
    label(EACH)
    data(2, 0xCB10, 0xFA04, 0xF50A, 0xFA45, 0xF509)  # ldmia r3!, {r4}; lsl.w r5, r4, r10; asr.w r5, r5, r9
    data(2, 0xF505, 0x3580, 0xF385, 0x0511, 0x0A2E)  # add.w r5, r5, #65536; usat r5, #17, r5; lsrs r6, r5, #8
    data(2, 0xEB08, 0x0646, 0x8877, 0x8836)  # add.w r6, r8, r6, lsl #1; ldrh r7, [r6, #2]; ldrh r6, [r6]
    data(2, 0x1BBF, 0xB2ED, 0x436F)  # subs r7, r7, r6; uxtb r5, r5; muls r7, r5, r7
    data(2, 0xEB06, 0x2627, 0xFB04, 0xE406, 0x13E4)  # add.w r6, r6, r7, asr #8; mla r4, r4, r6, lr; asrs r4, r4, #15
    data(2, 0x0424, 0xC920, 0xFB85, 0x6404)  # lsls r4, r4, #16; ldmia r1!, {r5}; smull r6, r4, r5, r4
    data(2, 0x4464, 0xFA44, 0xF40B, 0xF304, 0x040F)  # add r4, r12; asr.w r4, r4, r11; ssat r4, #16, r4
    data(2, 0x4264, 0xF304, 0x040F, 0x4264)  # rsbs r4, r4, #0; ssat r4, #16, r4; rsbs r4, r4, #0
    data(2, 0xC010, 0x3A01)  # stmia r0!, {r4}; subs r2, #1
    bne(EACH)
    data(2, 0xE8BD, 0x0F00, 0x2000)  # ldmia.w sp!, {r8-r11}; movs r0, #0


# Attention


@micropython.asm_thumb
def rotate(r0, r1, r2, r3):
    # r0: a pair's first element, r1: phases, r2: sines, r10: a head in bytes, r11: from a pair's first to its second
    data(2, 0xE92D, 0x0F00, 0xE893, 0x01F0)  # stmdb sp!, {r8-r11}; ldmia.w r3, {r4-r8}
    data(2, 0xEA4F, 0x0A85, 0xFB04, 0xF905, 0xEA4F, 0x0B46)  # lsl.w r10, r5, #2; mul r9, r4, r5; lsl.w r11, r6, #1
    data(2, 0x0876)  # lsrs r6, r6, #1
    data(2, 0x2504, 0x2F00, 0xBF1C, 0xF04F, 0x0B04)  # movs r5, #4; cmp r7, #0; itt ne; movne.w r11, #4
    data(2, 0x2508)  # movne r5, #8
    # [sp]: vector, heads, from pair to pair, pairs left, clamp, elements
    data(2, 0x4603, 0xE92D, 0x0378)  # mov r3, r0; stmdb sp!, {r3, r4, r5, r6, r8, r9}
    data(2, 0xF602, 0x420C, 0xF44F, 0x4C80, 0x2E00)  # addw r2, r2, #3084; mov.w r12, #16384; cmp r6, #0
    beq(CLAMP)
    label(PAIR)
    data(2, 0xC910, 0xF3C4, 0x35D0, 0x0A2E)  # ldmia r1!, {r4}; ubfx r5, r4, #15, #17; lsrs r6, r5, #8
    data(2, 0xEB02, 0x0646, 0xF9B6, 0x8000)  # add.w r6, r2, r6, lsl #1; ldrsh.w r8, [r6]
    data(2, 0xF9B6, 0x7002, 0xEBA7, 0x0708, 0xB2ED)  # ldrsh.w r7, [r6, #2]; sub.w r7, r7, r8; uxtb r5, r5
    data(2, 0x436F, 0xEB08, 0x2827)  # muls r7, r5, r7; add.w r8, r8, r7, asr #8
    data(2, 0xF104, 0x4480, 0xF3C4, 0x35D0, 0x0A2E)  # add.w r4, r4, #0x40000000; ubfx r5, r4, #15, #17; lsrs r6, r5, #8
    data(2, 0xEB02, 0x0646, 0xF9B6, 0x9000)  # add.w r6, r2, r6, lsl #1; ldrsh.w r9, [r6]
    data(2, 0xF9B6, 0x7002, 0xEBA7, 0x0709, 0xB2ED)  # ldrsh.w r7, [r6, #2]; sub.w r7, r7, r9; uxtb r5, r5
    data(2, 0x436F, 0xEB09, 0x2927)  # muls r7, r5, r7; add.w r9, r9, r7, asr #8
    # r8: its sine, r9: its cosine
    data(2, 0x4686, 0x9F01)  # mov lr, r0; ldr r7, [sp, #4]
    label(HEAD)
    data(2, 0xF8DE, 0x4000, 0xF85E, 0x500B, 0xFB04, 0xC609)  # ldr.w r4, [lr]; ldr.w r5, [lr, r11]; mla r6, r4, r9, r12
    data(2, 0xFB05, 0x6618, 0x13F6)  # mls r6, r5, r8, r6; asrs r6, r6, #15
    data(2, 0xFB04, 0xC308, 0xFB05, 0x3309, 0x13DB)  # mla r3, r4, r8, r12; mla r3, r5, r9, r3; asrs r3, r3, #15
    data(2, 0xF84E, 0x300B, 0xF8CE, 0x6000, 0x44D6)  # str.w r3, [lr, r11]; str.w r6, [lr]; add lr, r10
    data(2, 0x3F01)  # subs r7, #1
    bne(HEAD)
    data(2, 0x9C02, 0x4420, 0x9C03, 0x3C01)  # ldr r4, [sp, #8]; add r0, r4; ldr r4, [sp, #12]; subs r4, #1
    data(2, 0x9403)  # str r4, [sp, #12]
    bne(PAIR)
    label(CLAMP)
    data(2, 0x9800, 0x9904, 0x9A05, 0x424B)  # ldr r0, [sp]; ldr r1, [sp, #16]; ldr r2, [sp, #20]; rsbs r3, r1, #0
    label(EACH)
    data(2, 0x6804, 0x428C, 0xBFC8, 0x460C, 0x429C)  # ldr r4, [r0]; cmp r4, r1; it gt; movgt r4, r1; cmp r4, r3
    data(2, 0xBFB8, 0x461C, 0xC010, 0x3A01)  # it lt; movlt r4, r3; stmia r0!, {r4}; subs r2, #1
    bne(EACH)
    data(2, 0xB006, 0xE8BD, 0x0F00, 0x2000)  # add sp, #24; ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.asm_thumb
def _remember(r0):
    # r0: keys, r1: values, r2: those of all tokens, r3: as well, r4: from head to head, r5: from value to value,
    # r6: heads, r7: elements
    data(2, 0xE92D, 0x0F00, 0xC8FF)  # stmdb sp!, {r8-r11}; ldm r0, {r0-r7}
    label(HEAD)
    data(2, 0x46B8)  # mov r8, r7
    label(EACH)
    data(2, 0xF850, 0x9B04, 0xF509, 0x4900, 0xF822, 0x9B02)  # ldr r9, [r0], #4; add.w r9, r9, #32768; strh r9, [r2], #2
    data(2, 0xF851, 0x9B04, 0xF509, 0x4900, 0xF8A3, 0x9000)  # ldr r9, [r1], #4; add.w r9, r9, #32768; strh.w r9, [r3]
    data(2, 0x442B, 0xF1B8, 0x0801)  # add r3, r5; subs.w r8, r8, #1
    bne(EACH)
    data(2, 0x4422, 0x3E01)  # add r2, r4; subs r6, #1
    bne(HEAD)
    data(2, 0xE8BD, 0x0F00, 0x2000)  # ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.viper
def attend(y, q, keys, values, s, t, p):
    if ptr32(p)[1] & 7 != 0:
        _viper.attend(y, q, keys, values, s, t, p)
    else:
        heads(_sums, y, q, keys, values, s, t, p)


@micropython.viper
def heads(sums, y: ptr32, q: ptr32, keys: ptr16, values: ptr16, s: ptr32, t: ptr8, p: ptr32):
    """Attention, head by head: `sums` does the dot products of a head's elements, then of its slots."""
    jobs = _job
    job = ptr32(jobs)
    softs = _soft
    soft = ptr32(softs)
    dim = p[1]
    used = p[2]
    row = dim << 1
    column = p[4] << 1
    size = p[4] * row  # of a head's keys, or values
    n = int(q) + (p[5] * dim << 2)
    job[0] = n
    job[1] = n + (p[0] * dim << 2)
    job[2] = int(keys) + p[3] * row
    job[3] = int(values) + (p[3] << 1)
    job[4] = size - row
    job[5] = column
    job[6] = p[0]
    job[7] = dim
    _remember(jobs)
    left = 0
    shift = p[7]
    if shift < 0:
        left = 0 - shift
        shift = 0
    if shift > 31:
        shift = 31
    cut = 1 << 20 >> left  # from here on a weight is 0
    if cut == 0:
        cut = 1
    soft[0] = int(s)
    soft[1] = int(t)
    soft[2] = used
    soft[3] = p[6] << 16
    soft[4] = shift
    soft[5] = left
    soft[6] = cut
    group = p[5] // p[0]
    n = group
    left = p[5]
    while left > 0:
        job[0] = int(s)
        job[1] = int(s) + (used << 2)
        job[2] = int(keys)
        job[3] = int(q)
        job[4] = dim >> 3
        job[5] = 0
        job[6] = row - 16
        sums(jobs)
        _softmax(softs)
        job[0] = int(y)
        q = ptr32(int(q) + (dim << 2))
        y = ptr32(int(y) + (dim << 2))
        job[1] = int(y)
        job[2] = int(values)
        job[3] = int(s)
        job[4] = (used + 7) >> 3
        job[5] = 16384
        job[6] = column - 16
        sums(jobs)
        left -= 1
        n -= 1
        if n == 0:
            n = group
            keys = ptr16(int(keys) + size)
            values = ptr16(int(values) + size)


@micropython.asm_thumb
def _sums(r0):
    # Rows of biased 16-bit numbers, [sp, #8], times the vector at [sp, #12], to words at [sp] up to [sp, #4]; eights of
    # columns in [sp, #16]. [sp, #20]: what is added; where it is not 0, results are divided by 2^15 and saturated
    data(2, 0xE92D, 0x0F00, 0xE890, 0x00FE)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r1-r7}
    data(2, 0xE92D, 0x00FE, 0x46BE, 0x2200)  # stmdb sp!, {r1-r7}; mov lr, r7; movs r2, #0
    label(TOTAL)
    data(2, 0xE8B4, 0x1F80, 0x443A, 0x4442, 0x444A)  # ldmia.w r4!, {r7-r12}; add r2, r7; add r2, r8; add r2, r9
    data(2, 0x4452, 0x445A, 0x4462)  # add r2, r10; add r2, r11; add r2, r12
    data(2, 0xE8B4, 0x0180, 0x443A, 0x4442, 0x3D01)  # ldmia.w r4!, {r7, r8}; add r2, r7; add r2, r8; subs r5, #1
    bne(TOTAL)
    data(2, 0xEBA6, 0x32C2, 0xE9DD, 0x0300)  # sub.w r2, r6, r2, lsl #15; ldrd r0, r3, [sp]
    label(BEGIN)
    data(2, 0xC004, 0x4298)  # stmia r0!, {r2}; cmp r0, r3
    bne(BEGIN)
    label(EIGHT)
    data(2, 0xE9DD, 0x1202, 0xE8B2, 0x0FF0)  # ldrd r1, r2, [sp, #8]; ldmia.w r2!, {r4-r11}
    data(2, 0xEBA5, 0x4504, 0xEBA7, 0x4706)  # sub.w r5, r5, r4, lsl #16; sub.w r7, r7, r6, lsl #16
    data(2, 0xEBA9, 0x4908, 0xEBAB, 0x4B0A)  # sub.w r9, r9, r8, lsl #16; sub.w r11, r11, r10, lsl #16
    data(2, 0xF101, 0x0310, 0xE9CD, 0x3202, 0x9800)  # add.w r3, r1, #16; strd r3, r2, [sp, #8]; ldr r0, [sp]
    label(ROW)
    data(2, 0xF8D0, 0xC000, 0xC90C, 0xFB02, 0xCC04)  # ldr.w r12, [r0]; ldmia r1!, {r2, r3}; mla r12, r2, r4, r12
    data(2, 0x0C12, 0xFB02, 0xCC05)  # lsrs r2, r2, #16; mla r12, r2, r5, r12
    data(2, 0xFB03, 0xCC06, 0x0C1B, 0xFB03, 0xCC07)  # mla r12, r3, r6, r12; lsrs r3, r3, #16; mla r12, r3, r7, r12
    data(2, 0xC90C, 0xFB02, 0xCC08, 0x0C12)  # ldmia r1!, {r2, r3}; mla r12, r2, r8, r12; lsrs r2, r2, #16
    data(2, 0xFB02, 0xCC09)  # mla r12, r2, r9, r12
    data(2, 0xFB03, 0xCC0A, 0x0C1B, 0xFB03, 0xCC0B)  # mla r12, r3, r10, r12; lsrs r3, r3, #16; mla r12, r3, r11, r12
    data(2, 0xF840, 0xCB04, 0x4471, 0x9A01, 0x4290)  # str r12, [r0], #4; add r1, lr; ldr r2, [sp, #4]; cmp r0, r2
    bne(ROW)
    data(2, 0x9A04, 0x3A01, 0x9204)  # ldr r2, [sp, #16]; subs r2, #1; str r2, [sp, #16]
    bne(EIGHT)
    data(2, 0x9A05, 0x2A00)  # ldr r2, [sp, #20]; cmp r2, #0
    beq(END)
    data(2, 0xE9DD, 0x0300)  # ldrd r0, r3, [sp]
    label(EACH)
    data(2, 0x6801, 0x13C9, 0xF301, 0x010F, 0x4249)  # ldr r1, [r0]; asrs r1, r1, #15; ssat r1, #16, r1; rsbs r1, r1, #0
    data(2, 0xF301, 0x010F, 0x4249)  # ssat r1, #16, r1; rsbs r1, r1, #0
    data(2, 0xC002, 0x4298)  # stmia r0!, {r1}; cmp r0, r3
    bne(EACH)
    label(END)
    data(2, 0xB007, 0xE8BD, 0x0F00, 0x2000)  # add sp, #28; ldmia.w sp!, {r8-r11}; movs r0, #0


@micropython.asm_thumb
def _softmax(r0):
    # r0: scores, r1: powers of 2, r2: count, r3: total, r4: the largest score, r8: mantissa, r9, r10: shifts, r11: cut
    data(2, 0xE92D, 0x0F00, 0xE890, 0x0F07, 0xB405)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r0-r2, r8-r11}; push {r0, r2}
    data(2, 0x6804)  # ldr r4, [r0]
    label(LARGEST)
    data(2, 0xC820, 0x42A5, 0xBFC8, 0x462C, 0x3A01)  # ldmia r0!, {r5}; cmp r5, r4; it gt; movgt r4, r5; subs r2, #1
    bne(LARGEST)
    data(2, 0xE9DD, 0x0200, 0x2300)  # ldrd r0, r2, [sp]; movs r3, #0
    label(WEIGHT)
    data(2, 0x6805, 0x1B65, 0xFBA5, 0x6508)  # ldr r5, [r0]; subs r5, r4, r5; umull r6, r5, r5, r8
    data(2, 0xFA25, 0xF509, 0x2600, 0x455D)  # lsr.w r5, r5, r9; movs r6, #0; cmp r5, r11
    bge(STORE)
    data(2, 0xFA05, 0xF50A, 0xF3C5, 0x2607)  # lsl.w r5, r5, r10; ubfx r6, r5, #8, #8
    data(2, 0xEB01, 0x0686, 0x6837, 0x6876)  # add.w r6, r1, r6, lsl #2; ldr r7, [r6]; ldr r6, [r6, #4]
    data(2, 0x1BF6)  # subs r6, r6, r7
    data(2, 0xFA5F, 0xFC85, 0xFB06, 0xF60C, 0xEB07, 0x2626)  # uxtb.w r12, r5; mul r6, r6, r12; add.w r6, r7, r6, asr #8
    data(2, 0x0C2D, 0x40EE, 0x0A76, 0x4433)  # lsrs r5, r5, #16; lsrs r6, r5; lsrs r6, r6, #9; add r3, r6
    label(STORE)
    data(2, 0xC040, 0x3A01)  # stmia r0!, {r6}; subs r2, #1
    bne(WEIGHT)
    data(2, 0xFAB3, 0xF583, 0xF1D5, 0x0510, 0xBF48, 0x2500)  # clz r5, r3; rsbs.w r5, r5, #16; it mi; movmi r5, #0
    data(2, 0x40EB, 0xF04F, 0x4680, 0xFBB6, 0xF3F3)  # lsrs r3, r5; mov.w r6, #0x40000000; udiv r3, r6, r3
    data(2, 0x350F, 0x2601, 0x40AE, 0x0876)  # adds r5, #15; movs r6, #1; lsls r6, r5; lsrs r6, r6, #1
    data(2, 0xE9DD, 0x0200)  # ldrd r0, r2, [sp]
    label(EACH)
    data(2, 0x6807, 0xFB07, 0x6703, 0x40EF, 0xC080)  # ldr r7, [r0]; mla r7, r7, r3, r6; lsrs r7, r5; stmia r0!, {r7}
    data(2, 0x3A01)  # subs r2, #1
    bne(EACH)
    data(2, 0x9A01, 0x4252, 0xF012, 0x0207)  # ldr r2, [sp, #4]; rsbs r2, r2, #0; ands.w r2, r2, #7
    data(2, 0xF04F, 0x0700)  # mov.w r7, #0
    beq(END)
    label(PAST)
    data(2, 0xC080, 0x3A01)  # stmia r0!, {r7}; subs r2, #1
    bne(PAST)
    label(END)
    data(2, 0xB002, 0xE8BD, 0x0F00, 0x2000)  # add sp, #8; ldmia.w sp!, {r8-r11}; movs r0, #0


# Sampler


@micropython.asm_thumb
def argmax(r0, r1):
    # r3: behind the largest so far, r4: the largest so far
    data(2, 0x4606, 0xC810, 0x4603)  # mov r6, r0; ldmia r0!, {r4}; mov r3, r0
    label(EACH)
    data(2, 0x3901)  # subs r1, #1
    beq(END)
    data(2, 0xC820, 0x42A5)  # ldmia r0!, {r5}; cmp r5, r4
    ble(EACH)
    data(2, 0x462C, 0x4603)  # mov r4, r5; mov r3, r0
    b(EACH)
    label(END)
    data(2, 0x1B98, 0x0880, 0x3801)  # subs r0, r3, r6; lsrs r0, r0, #2; subs r0, #1


@micropython.viper
def candidates(ids: ptr32, w: ptr32, logits: ptr32, t: ptr8, p: ptr32) -> int:
    jobs = _job
    job = ptr32(jobs)
    shift = p[2]
    left = 0
    if shift < 0:
        left = 0 - shift
        shift = 0
    if shift > 31:
        shift = 31
    cut = 1 << 20 >> left  # from here on a weight is 0
    if cut == 0:
        cut = 1
    job[0] = int(ids)
    job[1] = int(w)
    job[2] = int(logits)
    job[3] = p[0]
    job[4] = p[1] << 16
    job[5] = shift
    job[6] = left
    job[7] = cut
    job[8] = int(t)
    job[9] = p[3]
    return int(_candidates(jobs))


@micropython.asm_thumb
def _candidates(r0):
    # r0: ids, r1: weights, r2: logits, r3: how many are left, r8: mantissa, r9, r10: shifts, r11: cut, r12: powers of
    # 2, r14: the largest logit. [sp]: ids, count
    data(2, 0xE92D, 0x0F00, 0xE890, 0x5F0F)  # stmdb sp!, {r8-r11}; ldmia.w r0, {r0-r3, r8-r12, lr}
    data(2, 0xB409)  # push {r0, r3}
    label(EACH)
    data(2, 0xCA10, 0xEBAE, 0x0404, 0xFBA4, 0x5408)  # ldmia r2!, {r4}; sub.w r4, lr, r4; umull r5, r4, r4, r8
    data(2, 0xFA24, 0xF409, 0x455C)  # lsr.w r4, r4, r9; cmp r4, r11
    bge(NEXT)
    data(2, 0xFA04, 0xF40A, 0xF3C4, 0x2507)  # lsl.w r4, r4, r10; ubfx r5, r4, #8, #8
    data(2, 0xEB0C, 0x0585, 0x682E, 0x686D)  # add.w r5, r12, r5, lsl #2; ldr r6, [r5]; ldr r5, [r5, #4]
    data(2, 0x1BAD, 0xB2E7, 0x437D)  # subs r5, r5, r6; uxtb r7, r4; muls r5, r7, r5
    data(2, 0xEB06, 0x2625, 0x0C24, 0x40E6)  # add.w r6, r6, r5, asr #8; lsrs r4, r4, #16; lsrs r6, r4
    data(2, 0x0AB6)  # lsrs r6, r6, #10
    beq(NEXT)
    data(2, 0x9F01, 0x1AFF, 0xC080, 0xC140)  # ldr r7, [sp, #4]; subs r7, r7, r3; stmia r0!, {r7}; stmia r1!, {r6}
    label(NEXT)
    data(2, 0x3B01)  # subs r3, #1
    bne(EACH)
    data(2, 0x9900, 0x1A40, 0x0880, 0xB002)  # ldr r1, [sp]; subs r0, r0, r1; lsrs r0, r0, #2; add sp, #8
    data(2, 0xE8BD, 0x0F00)  # ldmia.w sp!, {r8-r11}


# Files


@micropython.viper
def damaged(buf: ptr8, n: int, table: ptr8, at: int) -> int:
    job = ptr32(_job)
    job[0] = int(buf)
    job[1] = n
    job[2] = int(ptr32(_viper._CRCS))
    job[3] = int(table) + at
    return int(_damaged(_job))


@micropython.asm_thumb
def _damaged(r0):
    # r0: bytes, r1: how many, r2: what each byte does to a CRC, r3: the CRC that there should be, r4: the CRC so far
    data(2, 0xC80F, 0xF06F, 0x0400, 0x2900)  # ldmia r0, {r0, r1, r2, r3}; mvn r4, #0; cmp r1, #0
    beq(DONE)
    label(UNALIGNED)
    data(2, 0x0785)  # lsls r5, r0, #30
    beq(ALIGNED)
    data(2, 0xF810, 0x5B01, 0x406C, 0xB2E6)  # ldrb r5, [r0], #1; eors r4, r5; uxtb r6, r4
    data(2, 0xF852, 0x6026, 0xEA86, 0x2414, 0x3901)  # ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8; subs r1, #1
    bne(UNALIGNED)
    b(DONE)
    label(ALIGNED)
    data(2, 0x3908)  # subs r1, #8
    bcc(REST)
    label(EIGHT)
    data(2, 0xC8A0, 0x406C, 0xB2E6)  # ldmia r0!, {r5, r7}; eors r4, r5; uxtb r6, r4
    data(2, 0xF852, 0x6026, 0xEA86, 0x2414)  # ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8
    data(2, 0xB2E6, 0xF852, 0x6026, 0xEA86, 0x2414)  # uxtb r6, r4; ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8
    data(2, 0xB2E6, 0xF852, 0x6026, 0xEA86, 0x2414)  # uxtb r6, r4; ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8
    data(2, 0xB2E6, 0xF852, 0x6026, 0xEA86, 0x2414)  # uxtb r6, r4; ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8
    data(2, 0x407C, 0xB2E6, 0xF852, 0x6026)  # eors r4, r7; uxtb r6, r4; ldr.w r6, [r2, r6, lsl #2]
    data(2, 0xEA86, 0x2414)  # eor.w r4, r6, r4, lsr #8
    data(2, 0xB2E6, 0xF852, 0x6026, 0xEA86, 0x2414)  # uxtb r6, r4; ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8
    data(2, 0xB2E6, 0xF852, 0x6026, 0xEA86, 0x2414)  # uxtb r6, r4; ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8
    data(2, 0xB2E6, 0xF852, 0x6026, 0xEA86, 0x2414)  # uxtb r6, r4; ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8
    data(2, 0x3908)  # subs r1, #8
    bcs(EIGHT)
    label(REST)
    data(2, 0x3108)  # adds r1, #8
    beq(DONE)
    label(LAST)
    data(2, 0xF810, 0x5B01, 0x406C, 0xB2E6)  # ldrb r5, [r0], #1; eors r4, r5; uxtb r6, r4
    data(2, 0xF852, 0x6026, 0xEA86, 0x2414, 0x3901)  # ldr.w r6, [r2, r6, lsl #2]; eor.w r4, r6, r4, lsr #8; subs r1, #1
    bne(LAST)
    label(DONE)
    data(2, 0x43E4, 0x881D, 0x885E)  # mvns r4, r4; ldrh r5, [r3]; ldrh r6, [r3, #2]
    data(2, 0xEA45, 0x4506, 0x2000, 0x42AC)  # orr.w r5, r5, r6, lsl #16; movs r0, #0; cmp r4, r5
    beq(END)
    data(2, 0x2001)  # movs r0, #1
    label(END)
