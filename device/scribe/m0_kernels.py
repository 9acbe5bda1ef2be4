"""The matrix kernels in the assembler of Cortex-M0 and M0+ (RP2040); the same results to the bit.

As thumb_kernels.py, whose notes hold here, for a processor with half as many registers at hand, products of 32 bits
only and no `mla`: a weight costs a shift, a product and an addition, and the first of a word no shift.
"""

from array import array

import micropython

NAME = "m0"

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
