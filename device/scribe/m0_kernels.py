"""The matrix, norm and gate kernels in the assembler of Cortex-M0 and M0+ (RP2040); the same results to the bit.

As thumb_kernels.py, whose notes hold here, for a processor with half as many registers at hand, products of 32 bits
only and no `mla`: a weight costs a shift, a product and an addition, and the first of a word no shift.
"""

from array import array

import micropython
from micropython import const

NAME = "m0"

_GELU = const(2056)
_RSQRT = const(4112)

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
    # r0: from, r1: to, r2: eights, r8: sum, r10: eights to the group's end. [sp]: the sum's place, last eight or 0
    data(2, 0x4644, 0x464D, 0x4656, 0xB470)  # mov r4, r8; mov r5, r9; mov r6, r10; push {r4-r6}
    data(2, 0xC81E, 0x4608, 0x4611, 0x461A)  # ldmia r0!, {r1-r4}; mov r0, r1; mov r1, r2; mov r2, r3
    data(2, 0x4623, 0xB408, 0xB081)  # mov r3, r4; push {r3}; sub sp, #4
    label(GROUP)
    data(2, 0x9100, 0x3104, 0x2300, 0x4698, 0x2308)  # str r1, [sp]; adds r1, #4; movs r3, #0; mov r8, r3; movs r3, #8
    data(2, 0x469A)  # mov r10, r3
    label(EIGHT)
    data(2, 0x2A01)  # cmp r2, #1
    bne(HERE)
    data(2, 0x9C01, 0x2C00)  # ldr r4, [sp, #4]; cmp r4, #0
    beq(HERE)
    data(2, 0x4620)  # mov r0, r4
    label(HERE)
    data(2, 0xC8F0, 0x44A0, 0x44A8, 0x44B0)  # ldmia r0!, {r4-r7}; add r8, r4; add r8, r5; add r8, r6
    data(2, 0x44B8)  # add r8, r7
    data(2, 0x0233, 0x1AFF, 0x022B, 0x1AF6)  # lsls r3, r6, #8; subs r7, r7, r3; lsls r3, r5, #8; subs r6, r6, r3
    data(2, 0x0223, 0x1AED, 0xC1F0)  # lsls r3, r4, #8; subs r5, r5, r3; stmia r1!, {r4-r7}
    data(2, 0xC8F0, 0x44A0, 0x44A8, 0x44B0)  # ldmia r0!, {r4-r7}; add r8, r4; add r8, r5; add r8, r6
    data(2, 0x44B8)  # add r8, r7
    data(2, 0x0233, 0x1AFF, 0x022B, 0x1AF6)  # lsls r3, r6, #8; subs r7, r7, r3; lsls r3, r5, #8; subs r6, r6, r3
    data(2, 0x0223, 0x1AED, 0xC1F0)  # lsls r3, r4, #8; subs r5, r5, r3; stmia r1!, {r4-r7}
    data(2, 0x3A01)  # subs r2, #1
    beq(SUM)
    data(2, 0x4653, 0x3B01, 0x469A)  # mov r3, r10; subs r3, #1; mov r10, r3
    bne(EIGHT)
    label(SUM)
    data(2, 0x4644, 0x01E4, 0x4264, 0x9B00)  # mov r4, r8; lsls r4, r4, #7; rsbs r4, r4, #0; ldr r3, [sp]
    data(2, 0x601C, 0x2A00)  # str r4, [r3]; cmp r2, #0
    bne(GROUP)
    data(2, 0xB002, 0xBC70, 0x46A0, 0x46A9, 0x46B2)  # add sp, #8; pop {r4-r6}; mov r8, r4; mov r9, r5; mov r10, r6
    data(2, 0x2000)  # movs r0, #0



@micropython.asm_thumb
def _pack4(r0):
    # r0: from, r1: to, r2: eights, r8: sum, r10: eights to the group's end. [sp]: the sum's place, last eight or 0
    data(2, 0x4644, 0x464D, 0x4656, 0xB470)  # mov r4, r8; mov r5, r9; mov r6, r10; push {r4-r6}
    data(2, 0xC81E, 0x4608, 0x4611, 0x461A)  # ldmia r0!, {r1-r4}; mov r0, r1; mov r1, r2; mov r2, r3
    data(2, 0x4623, 0xB408, 0xB081)  # mov r3, r4; push {r3}; sub sp, #4
    label(GROUP)
    data(2, 0x9100, 0x3104, 0x2300, 0x4698, 0x2308)  # str r1, [sp]; adds r1, #4; movs r3, #0; mov r8, r3; movs r3, #8
    data(2, 0x469A)  # mov r10, r3
    label(EIGHT)
    data(2, 0x2A01)  # cmp r2, #1
    bne(HERE)
    data(2, 0x9C01, 0x2C00)  # ldr r4, [sp, #4]; cmp r4, #0
    beq(HERE)
    data(2, 0x4620)  # mov r0, r4
    label(HERE)
    data(2, 0xC8F0, 0x44A0, 0x44A8, 0x44B0)  # ldmia r0!, {r4-r7}; add r8, r4; add r8, r5; add r8, r6
    data(2, 0x44B8)  # add r8, r7
    data(2, 0x46B9, 0x0133, 0x1AFF, 0x012B)  # mov r9, r7; lsls r3, r6, #4; subs r7, r7, r3; lsls r3, r5, #4
    data(2, 0x1AF6, 0x0123, 0x1AED, 0xC1F0)  # subs r6, r6, r3; lsls r3, r4, #4; subs r5, r5, r3; stmia r1!, {r4-r7}
    data(2, 0xC8F0, 0x44A0, 0x44A8, 0x44B0)  # ldmia r0!, {r4-r7}; add r8, r4; add r8, r5; add r8, r6
    data(2, 0x44B8)  # add r8, r7
    data(2, 0x0133, 0x1AFF, 0x012B, 0x1AF6)  # lsls r3, r6, #4; subs r7, r7, r3; lsls r3, r5, #4; subs r6, r6, r3
    data(2, 0x0123, 0x1AED, 0x464B, 0x011B)  # lsls r3, r4, #4; subs r5, r5, r3; mov r3, r9; lsls r3, r3, #4
    data(2, 0x1AE4, 0xC1F0)  # subs r4, r4, r3; stmia r1!, {r4-r7}
    data(2, 0x3A01)  # subs r2, #1
    beq(SUM)
    data(2, 0x4653, 0x3B01, 0x469A)  # mov r3, r10; subs r3, #1; mov r10, r3
    bne(EIGHT)
    label(SUM)
    data(2, 0x4644, 0x00E4, 0x4264, 0x9B00)  # mov r4, r8; lsls r4, r4, #3; rsbs r4, r4, #0; ldr r3, [sp]
    data(2, 0x601C, 0x2A00)  # str r4, [r3]; cmp r2, #0
    bne(GROUP)
    data(2, 0xB002, 0xBC70, 0x46A0, 0x46A9, 0x46B2)  # add sp, #8; pop {r4-r6}; mov r8, r4; mov r9, r5; mov r10, r6
    data(2, 0x2000)  # movs r0, #0


@micropython.asm_thumb
def _rows8(r0):
    # [sp]: scale, result, end of results, vector, end of its whole groups, its end, bias or 0, half of a unit, shift
    # and mode, way into the code for a short group. r0: weights, r1: vector, r8: a group's sum, r9: the row's
    data(2, 0x4644, 0x464D, 0xB430, 0xB08A, 0x4669)  # mov r4, r8; mov r5, r9; push {r4, r5}; sub sp, #40; mov r1, sp
    data(2, 0xC87C, 0xC17C)  # ldmia r0!, {r2-r6}; stmia r1!, {r2-r6}
    data(2, 0xC87C, 0xC17C, 0x6800)  # ldmia r0!, {r2-r6}; stmia r1!, {r2-r6}; ldr r0, [r0]
    label(ROW)
    data(2, 0x9B07, 0x9A06, 0x2A00)  # ldr r3, [sp, #28]; ldr r2, [sp, #24]; cmp r2, #0
    beq(UNBIASED)
    data(2, 0xCA10, 0x191B, 0x9206)  # ldmia r2!, {r4}; adds r3, r3, r4; str r2, [sp, #24]
    label(UNBIASED)
    data(2, 0x4699, 0x9903, 0x9A04, 0x4291)  # mov r9, r3; ldr r1, [sp, #12]; ldr r2, [sp, #16]; cmp r1, r2
    bcc(GROUP)
    label(SHORT)
    data(2, 0xC908, 0x4698, 0x9A09, 0x4497)  # ldmia r1!, {r3}; mov r8, r3; ldr r2, [sp, #36]; add pc, r2
    label(GROUP)
    data(2, 0xC904, 0x4690)  # ldmia r1!, {r2}; mov r8, r2
    data(2, 0xC80C, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0A12, 0x4355, 0x44A8, 0x0A12)  # lsrs r2, r2, #8; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #8
    data(2, 0x4356, 0x44B0, 0x0A12, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #8; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x435C, 0x44A0)  # add r8, r7; ldmia r1!, {r4-r7}; muls r4, r3, r4; add r8, r4
    data(2, 0x0A1B, 0x435D, 0x44A8, 0x0A1B)  # lsrs r3, r3, #8; muls r5, r3, r5; add r8, r5; lsrs r3, r3, #8
    data(2, 0x435E, 0x44B0, 0x0A1B, 0x435F)  # muls r6, r3, r6; add r8, r6; lsrs r3, r3, #8; muls r7, r3, r7
    data(2, 0x44B8)  # add r8, r7
    data(2, 0xC80C, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0A12, 0x4355, 0x44A8, 0x0A12)  # lsrs r2, r2, #8; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #8
    data(2, 0x4356, 0x44B0, 0x0A12, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #8; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x435C, 0x44A0)  # add r8, r7; ldmia r1!, {r4-r7}; muls r4, r3, r4; add r8, r4
    data(2, 0x0A1B, 0x435D, 0x44A8, 0x0A1B)  # lsrs r3, r3, #8; muls r5, r3, r5; add r8, r5; lsrs r3, r3, #8
    data(2, 0x435E, 0x44B0, 0x0A1B, 0x435F)  # muls r6, r3, r6; add r8, r6; lsrs r3, r3, #8; muls r7, r3, r7
    data(2, 0x44B8)  # add r8, r7
    data(2, 0xC80C, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0A12, 0x4355, 0x44A8, 0x0A12)  # lsrs r2, r2, #8; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #8
    data(2, 0x4356, 0x44B0, 0x0A12, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #8; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x435C, 0x44A0)  # add r8, r7; ldmia r1!, {r4-r7}; muls r4, r3, r4; add r8, r4
    data(2, 0x0A1B, 0x435D, 0x44A8, 0x0A1B)  # lsrs r3, r3, #8; muls r5, r3, r5; add r8, r5; lsrs r3, r3, #8
    data(2, 0x435E, 0x44B0, 0x0A1B, 0x435F)  # muls r6, r3, r6; add r8, r6; lsrs r3, r3, #8; muls r7, r3, r7
    data(2, 0x44B8)  # add r8, r7
    data(2, 0xC80C, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0A12, 0x4355, 0x44A8, 0x0A12)  # lsrs r2, r2, #8; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #8
    data(2, 0x4356, 0x44B0, 0x0A12, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #8; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x435C, 0x44A0)  # add r8, r7; ldmia r1!, {r4-r7}; muls r4, r3, r4; add r8, r4
    data(2, 0x0A1B, 0x435D, 0x44A8, 0x0A1B)  # lsrs r3, r3, #8; muls r5, r3, r5; add r8, r5; lsrs r3, r3, #8
    data(2, 0x435E, 0x44B0, 0x0A1B, 0x435F)  # muls r6, r3, r6; add r8, r6; lsrs r3, r3, #8; muls r7, r3, r7
    data(2, 0x44B8)  # add r8, r7
    data(2, 0xC80C, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0A12, 0x4355, 0x44A8, 0x0A12)  # lsrs r2, r2, #8; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #8
    data(2, 0x4356, 0x44B0, 0x0A12, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #8; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x435C, 0x44A0)  # add r8, r7; ldmia r1!, {r4-r7}; muls r4, r3, r4; add r8, r4
    data(2, 0x0A1B, 0x435D, 0x44A8, 0x0A1B)  # lsrs r3, r3, #8; muls r5, r3, r5; add r8, r5; lsrs r3, r3, #8
    data(2, 0x435E, 0x44B0, 0x0A1B, 0x435F)  # muls r6, r3, r6; add r8, r6; lsrs r3, r3, #8; muls r7, r3, r7
    data(2, 0x44B8)  # add r8, r7
    data(2, 0xC80C, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0A12, 0x4355, 0x44A8, 0x0A12)  # lsrs r2, r2, #8; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #8
    data(2, 0x4356, 0x44B0, 0x0A12, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #8; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x435C, 0x44A0)  # add r8, r7; ldmia r1!, {r4-r7}; muls r4, r3, r4; add r8, r4
    data(2, 0x0A1B, 0x435D, 0x44A8, 0x0A1B)  # lsrs r3, r3, #8; muls r5, r3, r5; add r8, r5; lsrs r3, r3, #8
    data(2, 0x435E, 0x44B0, 0x0A1B, 0x435F)  # muls r6, r3, r6; add r8, r6; lsrs r3, r3, #8; muls r7, r3, r7
    data(2, 0x44B8)  # add r8, r7
    data(2, 0xC80C, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0A12, 0x4355, 0x44A8, 0x0A12)  # lsrs r2, r2, #8; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #8
    data(2, 0x4356, 0x44B0, 0x0A12, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #8; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x435C, 0x44A0)  # add r8, r7; ldmia r1!, {r4-r7}; muls r4, r3, r4; add r8, r4
    data(2, 0x0A1B, 0x435D, 0x44A8, 0x0A1B)  # lsrs r3, r3, #8; muls r5, r3, r5; add r8, r5; lsrs r3, r3, #8
    data(2, 0x435E, 0x44B0, 0x0A1B, 0x435F)  # muls r6, r3, r6; add r8, r6; lsrs r3, r3, #8; muls r7, r3, r7
    data(2, 0x44B8)  # add r8, r7
    data(2, 0xC80C, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2, r3}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0A12, 0x4355, 0x44A8, 0x0A12)  # lsrs r2, r2, #8; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #8
    data(2, 0x4356, 0x44B0, 0x0A12, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #8; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x435C, 0x44A0)  # add r8, r7; ldmia r1!, {r4-r7}; muls r4, r3, r4; add r8, r4
    data(2, 0x0A1B, 0x435D, 0x44A8, 0x0A1B)  # lsrs r3, r3, #8; muls r5, r3, r5; add r8, r5; lsrs r3, r3, #8
    data(2, 0x435E, 0x44B0, 0x0A1B, 0x435F)  # muls r6, r3, r6; add r8, r6; lsrs r3, r3, #8; muls r7, r3, r7
    data(2, 0x44B8)  # add r8, r7
    data(2, 0x4642, 0x1413, 0xB292, 0x9D00)  # mov r2, r8; asrs r3, r2, #16; uxth r2, r2; ldr r5, [sp]
    data(2, 0x882C, 0x3502, 0x9500)  # ldrh r4, [r5]; adds r5, #2; str r5, [sp]
    data(2, 0x4363, 0x4362, 0x0C12, 0x4499)  # muls r3, r4, r3; muls r2, r4, r2; lsrs r2, r2, #16; add r9, r3
    data(2, 0x4491)  # add r9, r2
    data(2, 0x9A04, 0x4291)  # ldr r2, [sp, #16]; cmp r1, r2
    bcs(WHOLE)
    b(GROUP)
    label(WHOLE)
    data(2, 0x9A05, 0x4291)  # ldr r2, [sp, #20]; cmp r1, r2
    bcs(DONE)
    b(SHORT)
    label(DONE)
    data(2, 0x464A, 0x9B08, 0x411A, 0x9901)  # mov r2, r9; ldr r3, [sp, #32]; asrs r2, r3; ldr r1, [sp, #4]
    data(2, 0x2401, 0x005B)  # movs r4, #1; lsls r3, r3, #1
    bcs(ADD)
    bmi(STORE)
    data(2, 0x03E4)  # lsls r4, r4, #15
    b(CLAMP)
    label(ADD)
    data(2, 0x680B, 0x18D2, 0x07A4)  # ldr r3, [r1]; adds r2, r2, r3; lsls r4, r4, #30
    label(CLAMP)
    data(2, 0x3C01, 0x42A2)  # subs r4, #1; cmp r2, r4
    ble(BELOW)
    data(2, 0x4622)  # mov r2, r4
    label(BELOW)
    data(2, 0x4264, 0x42A2)  # rsbs r4, r4, #0; cmp r2, r4
    bge(STORE)
    data(2, 0x4622)  # mov r2, r4
    label(STORE)
    data(2, 0xC104, 0x9101, 0x9A02, 0x4291)  # stmia r1!, {r2}; str r1, [sp, #4]; ldr r2, [sp, #8]; cmp r1, r2
    beq(END)
    b(ROW)
    label(END)
    data(2, 0xB00A, 0xBC30, 0x46A0, 0x46A9, 0x2000)  # add sp, #40; pop {r4, r5}; mov r8, r4; mov r9, r5; movs r0, #0


@micropython.asm_thumb
def _rows4(r0):
    # [sp]: scale, result, end of results, vector, end of its whole groups, its end, bias or 0, half of a unit, shift
    # and mode, way into the code for a short group. r0: weights, r1: vector, r8: a group's sum, r9: the row's
    data(2, 0x4644, 0x464D, 0xB430, 0xB08A, 0x4669)  # mov r4, r8; mov r5, r9; push {r4, r5}; sub sp, #40; mov r1, sp
    data(2, 0xC87C, 0xC17C)  # ldmia r0!, {r2-r6}; stmia r1!, {r2-r6}
    data(2, 0xC87C, 0xC17C, 0x6800)  # ldmia r0!, {r2-r6}; stmia r1!, {r2-r6}; ldr r0, [r0]
    label(ROW)
    data(2, 0x9B07, 0x9A06, 0x2A00)  # ldr r3, [sp, #28]; ldr r2, [sp, #24]; cmp r2, #0
    beq(UNBIASED)
    data(2, 0xCA10, 0x191B, 0x9206)  # ldmia r2!, {r4}; adds r3, r3, r4; str r2, [sp, #24]
    label(UNBIASED)
    data(2, 0x4699, 0x9903, 0x9A04, 0x4291)  # mov r9, r3; ldr r1, [sp, #12]; ldr r2, [sp, #16]; cmp r1, r2
    bcc(GROUP)
    label(SHORT)
    data(2, 0xC908, 0x4698, 0x9A09, 0x4497)  # ldmia r1!, {r3}; mov r8, r3; ldr r2, [sp, #36]; add pc, r2
    label(GROUP)
    data(2, 0xC904, 0x4690)  # ldmia r1!, {r2}; mov r8, r2
    data(2, 0xC804, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0912, 0x4355, 0x44A8, 0x0912)  # lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #4
    data(2, 0x4356, 0x44B0, 0x0912, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x0912, 0x4354)  # add r8, r7; ldmia r1!, {r4-r7}; lsrs r2, r2, #4; muls r4, r2, r4
    data(2, 0x44A0, 0x0912, 0x4355, 0x44A8)  # add r8, r4; lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5
    data(2, 0x0912, 0x4356, 0x44B0, 0x0912)  # lsrs r2, r2, #4; muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4
    data(2, 0x4357, 0x44B8)  # muls r7, r2, r7; add r8, r7
    data(2, 0xC804, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0912, 0x4355, 0x44A8, 0x0912)  # lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #4
    data(2, 0x4356, 0x44B0, 0x0912, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x0912, 0x4354)  # add r8, r7; ldmia r1!, {r4-r7}; lsrs r2, r2, #4; muls r4, r2, r4
    data(2, 0x44A0, 0x0912, 0x4355, 0x44A8)  # add r8, r4; lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5
    data(2, 0x0912, 0x4356, 0x44B0, 0x0912)  # lsrs r2, r2, #4; muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4
    data(2, 0x4357, 0x44B8)  # muls r7, r2, r7; add r8, r7
    data(2, 0xC804, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0912, 0x4355, 0x44A8, 0x0912)  # lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #4
    data(2, 0x4356, 0x44B0, 0x0912, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x0912, 0x4354)  # add r8, r7; ldmia r1!, {r4-r7}; lsrs r2, r2, #4; muls r4, r2, r4
    data(2, 0x44A0, 0x0912, 0x4355, 0x44A8)  # add r8, r4; lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5
    data(2, 0x0912, 0x4356, 0x44B0, 0x0912)  # lsrs r2, r2, #4; muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4
    data(2, 0x4357, 0x44B8)  # muls r7, r2, r7; add r8, r7
    data(2, 0xC804, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0912, 0x4355, 0x44A8, 0x0912)  # lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #4
    data(2, 0x4356, 0x44B0, 0x0912, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x0912, 0x4354)  # add r8, r7; ldmia r1!, {r4-r7}; lsrs r2, r2, #4; muls r4, r2, r4
    data(2, 0x44A0, 0x0912, 0x4355, 0x44A8)  # add r8, r4; lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5
    data(2, 0x0912, 0x4356, 0x44B0, 0x0912)  # lsrs r2, r2, #4; muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4
    data(2, 0x4357, 0x44B8)  # muls r7, r2, r7; add r8, r7
    data(2, 0xC804, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0912, 0x4355, 0x44A8, 0x0912)  # lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #4
    data(2, 0x4356, 0x44B0, 0x0912, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x0912, 0x4354)  # add r8, r7; ldmia r1!, {r4-r7}; lsrs r2, r2, #4; muls r4, r2, r4
    data(2, 0x44A0, 0x0912, 0x4355, 0x44A8)  # add r8, r4; lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5
    data(2, 0x0912, 0x4356, 0x44B0, 0x0912)  # lsrs r2, r2, #4; muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4
    data(2, 0x4357, 0x44B8)  # muls r7, r2, r7; add r8, r7
    data(2, 0xC804, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0912, 0x4355, 0x44A8, 0x0912)  # lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #4
    data(2, 0x4356, 0x44B0, 0x0912, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x0912, 0x4354)  # add r8, r7; ldmia r1!, {r4-r7}; lsrs r2, r2, #4; muls r4, r2, r4
    data(2, 0x44A0, 0x0912, 0x4355, 0x44A8)  # add r8, r4; lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5
    data(2, 0x0912, 0x4356, 0x44B0, 0x0912)  # lsrs r2, r2, #4; muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4
    data(2, 0x4357, 0x44B8)  # muls r7, r2, r7; add r8, r7
    data(2, 0xC804, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0912, 0x4355, 0x44A8, 0x0912)  # lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #4
    data(2, 0x4356, 0x44B0, 0x0912, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x0912, 0x4354)  # add r8, r7; ldmia r1!, {r4-r7}; lsrs r2, r2, #4; muls r4, r2, r4
    data(2, 0x44A0, 0x0912, 0x4355, 0x44A8)  # add r8, r4; lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5
    data(2, 0x0912, 0x4356, 0x44B0, 0x0912)  # lsrs r2, r2, #4; muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4
    data(2, 0x4357, 0x44B8)  # muls r7, r2, r7; add r8, r7
    data(2, 0xC804, 0xC9F0, 0x4354, 0x44A0)  # ldmia r0!, {r2}; ldmia r1!, {r4-r7}; muls r4, r2, r4; add r8, r4
    data(2, 0x0912, 0x4355, 0x44A8, 0x0912)  # lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5; lsrs r2, r2, #4
    data(2, 0x4356, 0x44B0, 0x0912, 0x4357)  # muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4; muls r7, r2, r7
    data(2, 0x44B8, 0xC9F0, 0x0912, 0x4354)  # add r8, r7; ldmia r1!, {r4-r7}; lsrs r2, r2, #4; muls r4, r2, r4
    data(2, 0x44A0, 0x0912, 0x4355, 0x44A8)  # add r8, r4; lsrs r2, r2, #4; muls r5, r2, r5; add r8, r5
    data(2, 0x0912, 0x4356, 0x44B0, 0x0912)  # lsrs r2, r2, #4; muls r6, r2, r6; add r8, r6; lsrs r2, r2, #4
    data(2, 0x4357, 0x44B8)  # muls r7, r2, r7; add r8, r7
    data(2, 0x4642, 0x1313, 0x0512, 0x0D12)  # mov r2, r8; asrs r3, r2, #12; lsls r2, r2, #20; lsrs r2, r2, #20
    data(2, 0x9D00, 0x882C, 0x3502, 0x9500)  # ldr r5, [sp]; ldrh r4, [r5]; adds r5, #2; str r5, [sp]
    data(2, 0x4363, 0x4362, 0x0B12, 0x4499)  # muls r3, r4, r3; muls r2, r4, r2; lsrs r2, r2, #12; add r9, r3
    data(2, 0x4491)  # add r9, r2
    data(2, 0x9A04, 0x4291)  # ldr r2, [sp, #16]; cmp r1, r2
    bcs(WHOLE)
    b(GROUP)
    label(WHOLE)
    data(2, 0x9A05, 0x4291)  # ldr r2, [sp, #20]; cmp r1, r2
    bcs(DONE)
    b(SHORT)
    label(DONE)
    data(2, 0x464A, 0x9B08, 0x411A, 0x9901)  # mov r2, r9; ldr r3, [sp, #32]; asrs r2, r3; ldr r1, [sp, #4]
    data(2, 0x2401, 0x005B)  # movs r4, #1; lsls r3, r3, #1
    bcs(ADD)
    bmi(STORE)
    data(2, 0x03E4)  # lsls r4, r4, #15
    b(CLAMP)
    label(ADD)
    data(2, 0x680B, 0x18D2, 0x07A4)  # ldr r3, [r1]; adds r2, r2, r3; lsls r4, r4, #30
    label(CLAMP)
    data(2, 0x3C01, 0x42A2)  # subs r4, #1; cmp r2, r4
    ble(BELOW)
    data(2, 0x4622)  # mov r2, r4
    label(BELOW)
    data(2, 0x4264, 0x42A2)  # rsbs r4, r4, #0; cmp r2, r4
    bge(STORE)
    data(2, 0x4622)  # mov r2, r4
    label(STORE)
    data(2, 0xC104, 0x9101, 0x9A02, 0x4291)  # stmia r1!, {r2}; str r1, [sp, #4]; ldr r2, [sp, #8]; cmp r1, r2
    beq(END)
    b(ROW)
    label(END)
    data(2, 0xB00A, 0xBC30, 0x46A0, 0x46A9, 0x2000)  # add sp, #40; pop {r4, r5}; mov r8, r4; mov r9, r5; movs r0, #0


# Vectors


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
    # r8: stream, r9: p, r10: weights, r11: table, r12: results, r14: the stream's end
    data(2, 0x4641, 0x464A, 0x4653, 0x465C)  # mov r1, r8; mov r2, r9; mov r3, r10; mov r4, r11
    data(2, 0xB41E, 0x6841, 0x6882)  # push {r1, r2, r3, r4}; ldr r1, [r0, #4]; ldr r2, [r0, #8]
    data(2, 0x68C3, 0x469A, 0x6903, 0x469B)  # ldr r3, [r0, #12]; mov r10, r3; ldr r3, [r0, #16]; mov r11, r3
    data(2, 0x6803, 0x469C, 0x6813, 0x009B)  # ldr r3, [r0]; mov r12, r3; ldr r3, [r2]; lsls r3, r3, #2
    data(2, 0x185B, 0x469E, 0x4688, 0x4691, 0x2400)  # adds r3, r3, r1; mov lr, r3; mov r8, r1; mov r9, r2; movs r4, #0
    label(LARGEST)
    data(2, 0xC920, 0x17EE, 0x4075, 0x1BAD)  # ldmia r1!, {r5}; asrs r6, r5, #31; eors r5, r6; subs r5, r5, r6
    data(2, 0x432C, 0x4571)  # orrs r4, r5; cmp r1, lr
    bne(LARGEST)
    # r5: by how much the stream is shifted to fit 15 bits, r7: mean square, so far epsilon
    data(2, 0x2500, 0x2601, 0x03F6)  # movs r5, #0; movs r6, #1; lsls r6, r6, #15
    label(SHIFT)
    data(2, 0x42B4)  # cmp r4, r6
    blt(SHIFTED)
    data(2, 0x0864, 0x3501)  # lsrs r4, r4, #1; adds r5, #1
    b(SHIFT)
    label(SHIFTED)
    data(2, 0x6856, 0x6917, 0x006B, 0x199B)  # ldr r6, [r2, #4]; ldr r7, [r2, #16]; lsls r3, r5, #1; adds r3, r3, r6
    data(2, 0x2B1F)  # cmp r3, #31
    bls(SHORT)
    data(2, 0x231F)  # movs r3, #31
    label(SHORT)
    data(2, 0x40DF, 0x4641)  # lsrs r7, r3; mov r1, r8
    label(SQUARES)
    data(2, 0xC908, 0x412B, 0x435B, 0x40F3)  # ldmia r1!, {r3}; asrs r3, r5; muls r3, r3, r3; lsrs r3, r6
    data(2, 0x18FF, 0x4571)  # adds r7, r7, r3; cmp r1, lr
    bne(SQUARES)
    data(2, 0x2F00)  # cmp r7, #0
    bgt(SOME)
    data(2, 0x2701)  # movs r7, #1
    label(SOME)
    data(2, 0x2301, 0x079B, 0x429F)  # movs r3, #1; lsls r3, r3, #30; cmp r7, r3
    blt(FITS)
    data(2, 0x1E5F)  # subs r7, r3, #1
    label(FITS)
    # m = r7 4^j in [2^28, 2^30); r6: how far the unweighted result is shifted, 30 - j - point
    data(2, 0x6894, 0x261E, 0x1B36, 0x089B)  # ldr r4, [r2, #8]; movs r6, #30; subs r6, r6, r4; lsrs r3, r3, #2
    label(NORMAL)
    data(2, 0x429F)  # cmp r7, r3
    bge(NORMALISED)
    data(2, 0x00BF, 0x3E01)  # lsls r7, r7, #2; subs r6, #1
    b(NORMAL)
    label(NORMALISED)
    # one step of Newton's: r4 = 1 / sqrt(m)
    data(2, 0x0DBB, 0x3B40, 0x005B, 0x445B)  # lsrs r3, r7, #22; subs r3, #64; lsls r3, r3, #1; add r3, r11
    data(2, 0x881B, 0x461C, 0x435C, 0x0B64)  # ldrh r3, [r3]; mov r4, r3; muls r4, r3, r4; lsrs r4, r4, #13
    data(2, 0x0BFF, 0x437C, 0x2701, 0x07BF)  # lsrs r7, r7, #15; muls r4, r7, r4; movs r7, #1; lsls r7, r7, #30
    data(2, 0x1B3C, 0x13A4, 0x435C, 0x1424)  # subs r4, r7, r4; asrs r4, r4, #14; muls r4, r3, r4; asrs r4, r4, #16
    data(2, 0x005B, 0x18E4, 0x2701, 0x043F)  # lsls r3, r3, #1; adds r4, r4, r3; movs r7, #1; lsls r7, r7, #16
    data(2, 0x3F01, 0x42BC)  # subs r7, #1; cmp r4, r7
    ble(ROOT)
    data(2, 0x463C)  # mov r4, r7
    label(ROOT)
    data(2, 0x68D7, 0x46B9, 0x2301, 0x40BB)  # ldr r7, [r2, #12]; mov r9, r7; movs r3, #1; lsls r3, r7
    data(2, 0x085B, 0x469B, 0x4660, 0x4641)  # lsrs r3, r3, #1; mov r11, r3; mov r0, r12; mov r1, r8
    data(2, 0x4652)  # mov r2, r10
    label(EACH)
    data(2, 0xC908, 0x412B, 0x4363, 0x4133)  # ldmia r1!, {r3}; asrs r3, r5; muls r3, r4, r3; asrs r3, r6
    data(2, 0x2700, 0x5FD7, 0x3202, 0x437B)  # movs r7, #0; ldrsh r7, [r2, r7]; adds r2, #2; muls r3, r7, r3
    data(2, 0x445B, 0x464F, 0x413B, 0x2701)  # add r3, r11; mov r7, r9; asrs r3, r7; movs r7, #1
    data(2, 0x03FF, 0x3F01, 0x42BB)  # lsls r7, r7, #15; subs r7, #1; cmp r3, r7
    ble(BELOW)
    data(2, 0x463B)  # mov r3, r7
    label(BELOW)
    data(2, 0x427F, 0x42BB)  # rsbs r7, r7, #0; cmp r3, r7
    bge(STORE)
    data(2, 0x463B)  # mov r3, r7
    label(STORE)
    data(2, 0xC008, 0x4571)  # stmia r0!, {r3}; cmp r1, lr
    bne(EACH)
    data(2, 0xBC1E, 0x4688, 0x4691, 0x469A)  # pop {r1, r2, r3, r4}; mov r8, r1; mov r9, r2; mov r10, r3
    data(2, 0x46A3, 0x2000)  # mov r11, r4; movs r0, #0


@micropython.viper
def gated(y: ptr32, t: ptr8, p: ptr32):
    jobs = _job
    job = ptr32(jobs)
    shift = p[2]
    job[0] = int(y)
    job[1] = int(y) + (p[0] << 2)
    job[2] = int(t) + p[1]
    job[3] = 0
    job[4] = shift
    if shift < 0:
        job[3] = 0 - shift
        job[4] = 0
    job[5] = p[3]
    _gated(jobs)


@micropython.asm_thumb
def _gated(r0):
    # r0: what is gated, r1: its other half, r8: table, r9, r10: shifts, r11: the product's, r12: half of a unit, r14:
    # the end of r0
    data(2, 0x4641, 0x464A, 0x4653, 0x465C)  # mov r1, r8; mov r2, r9; mov r3, r10; mov r4, r11
    data(2, 0xB41E, 0x6881, 0x4688, 0x68C1)  # push {r1, r2, r3, r4}; ldr r1, [r0, #8]; mov r8, r1; ldr r1, [r0, #12]
    data(2, 0x4689, 0x6901, 0x468A, 0x6942)  # mov r9, r1; ldr r1, [r0, #16]; mov r10, r1; ldr r2, [r0, #20]
    data(2, 0x4693, 0x2101, 0x4091, 0x0849)  # mov r11, r2; movs r1, #1; lsls r1, r2; lsrs r1, r1, #1
    data(2, 0x468C, 0x6841, 0x6800, 0x468E)  # mov r12, r1; ldr r1, [r0, #4]; ldr r0, [r0]; mov lr, r1
    label(EACH)
    data(2, 0x6802, 0x4613, 0x4654, 0x40A3, 0x464C)  # ldr r2, [r0]; mov r3, r2; mov r4, r10; lsls r3, r4; mov r4, r9
    data(2, 0x4123, 0x2401, 0x0424, 0x191B)  # asrs r3, r4; movs r4, #1; lsls r4, r4, #16; adds r3, r3, r4
    bpl(HIGH)
    data(2, 0x2300)  # movs r3, #0
    label(HIGH)
    data(2, 0x0064, 0x42A3)  # lsls r4, r4, #1; cmp r3, r4
    blt(INSIDE)
    data(2, 0x1E63)  # subs r3, r4, #1
    label(INSIDE)
    data(2, 0x0A1C, 0x0064, 0x4444, 0x8825)  # lsrs r4, r3, #8; lsls r4, r4, #1; add r4, r8; ldrh r5, [r4]
    data(2, 0x8866, 0x1B76, 0xB2DB, 0x435E)  # ldrh r6, [r4, #2]; subs r6, r6, r5; uxtb r3, r3; muls r6, r3, r6
    data(2, 0x1236, 0x19AD, 0x436A, 0x2401)  # asrs r6, r6, #8; adds r5, r5, r6; muls r2, r5, r2; movs r4, #1
    data(2, 0x03A4, 0x1912, 0x13D2, 0xC908)  # lsls r4, r4, #14; adds r2, r2, r4; asrs r2, r2, #15; ldmia r1!, {r3}
    data(2, 0x435A, 0x4462, 0x465C, 0x4122)  # muls r2, r3, r2; add r2, r12; mov r4, r11; asrs r2, r4
    data(2, 0x2401, 0x03E4, 0x3C01, 0x42A2)  # movs r4, #1; lsls r4, r4, #15; subs r4, #1; cmp r2, r4
    ble(BELOW)
    data(2, 0x4622)  # mov r2, r4
    label(BELOW)
    data(2, 0x4264, 0x42A2)  # rsbs r4, r4, #0; cmp r2, r4
    bge(STORE)
    data(2, 0x4622)  # mov r2, r4
    label(STORE)
    data(2, 0xC004, 0x4570)  # stmia r0!, {r2}; cmp r0, lr
    bne(EACH)
    data(2, 0xBC1E, 0x4688, 0x4691, 0x469A)  # pop {r1, r2, r3, r4}; mov r8, r1; mov r9, r2; mov r10, r3
    data(2, 0x46A3, 0x2000)  # mov r11, r4; movs r0, #0


@micropython.viper
def gate_state(y: ptr32, h: ptr32, t: ptr8, p: ptr32):
    jobs = _job
    job = ptr32(jobs)
    shift = p[1]
    job[0] = int(y)
    job[1] = int(h)
    job[2] = int(t) + _GELU
    job[3] = 0
    job[4] = shift
    if shift < 0:
        job[3] = 0 - shift
        job[4] = 0
    job[5] = p[2]
    job[6] = int(y) + (p[0] << 2)
    _gate_state(jobs)


@micropython.asm_thumb
def _gate_state(r0):
    # r0: results, r1: state, r7: branch, r8: table, r9, r10: shifts, r11: the product's, r12: half of a unit, r14: the
    # end of r0
    data(2, 0x4641, 0x464A, 0x4653, 0x465C)  # mov r1, r8; mov r2, r9; mov r3, r10; mov r4, r11
    data(2, 0xB41E, 0x6881, 0x4688, 0x68C1)  # push {r1, r2, r3, r4}; ldr r1, [r0, #8]; mov r8, r1; ldr r1, [r0, #12]
    data(2, 0x4689, 0x6901, 0x468A, 0x6942)  # mov r9, r1; ldr r1, [r0, #16]; mov r10, r1; ldr r2, [r0, #20]
    data(2, 0x4693, 0x2101, 0x4091, 0x0849)  # mov r11, r2; movs r1, #1; lsls r1, r2; lsrs r1, r1, #1
    data(2, 0x468C, 0x6987, 0x46BE, 0x6841)  # mov r12, r1; ldr r7, [r0, #24]; mov lr, r7; ldr r1, [r0, #4]
    data(2, 0x6800)  # ldr r0, [r0]
    label(EACH)
    data(2, 0xCF04, 0x4613, 0x4654, 0x40A3, 0x464C)  # ldmia r7!, {r2}; mov r3, r2; mov r4, r10; lsls r3, r4; mov r4, r9
    data(2, 0x4123, 0x2401, 0x0424, 0x191B)  # asrs r3, r4; movs r4, #1; lsls r4, r4, #16; adds r3, r3, r4
    bpl(HIGH)
    data(2, 0x2300)  # movs r3, #0
    label(HIGH)
    data(2, 0x0064, 0x42A3)  # lsls r4, r4, #1; cmp r3, r4
    blt(INSIDE)
    data(2, 0x1E63)  # subs r3, r4, #1
    label(INSIDE)
    data(2, 0x0A1C, 0x0064, 0x4444, 0x8825)  # lsrs r4, r3, #8; lsls r4, r4, #1; add r4, r8; ldrh r5, [r4]
    data(2, 0x8866, 0x1B76, 0xB2DB, 0x435E)  # ldrh r6, [r4, #2]; subs r6, r6, r5; uxtb r3, r3; muls r6, r3, r6
    data(2, 0x1236, 0x19AD, 0x436A, 0x2401)  # asrs r6, r6, #8; adds r5, r5, r6; muls r2, r5, r2; movs r4, #1
    data(2, 0x03A4, 0x1912, 0x13D2, 0xC908)  # lsls r4, r4, #14; adds r2, r2, r4; asrs r2, r2, #15; ldmia r1!, {r3}
    data(2, 0xB29C, 0x4354, 0x1424, 0x141B)  # uxth r4, r3; muls r4, r2, r4; asrs r4, r4, #16; asrs r3, r3, #16
    data(2, 0x435A, 0x1912, 0x4462, 0x465C)  # muls r2, r3, r2; adds r2, r2, r4; add r2, r12; mov r4, r11
    data(2, 0x4122, 0x2401, 0x03E4, 0x3C01)  # asrs r2, r4; movs r4, #1; lsls r4, r4, #15; subs r4, #1
    data(2, 0x42A2)  # cmp r2, r4
    ble(BELOW)
    data(2, 0x4622)  # mov r2, r4
    label(BELOW)
    data(2, 0x4264, 0x42A2)  # rsbs r4, r4, #0; cmp r2, r4
    bge(STORE)
    data(2, 0x4622)  # mov r2, r4
    label(STORE)
    data(2, 0xC004, 0x4570)  # stmia r0!, {r2}; cmp r0, lr
    bne(EACH)
    data(2, 0xBC1E, 0x4688, 0x4691, 0x469A)  # pop {r1, r2, r3, r4}; mov r8, r1; mov r9, r2; mov r10, r3
    data(2, 0x46A3, 0x2000)  # mov r11, r4; movs r0, #0
