// What overlay.h turns on, for the boards of ports/qemu: a heap whose size is chosen as the board starts, a clock,
// polling of stdin, and a ROMFS partition in external memory. MIT license, as the rest of Scribe.

#include <string.h>

#include "py/gc.h"
#include "py/mperrno.h"
#include "py/mphal.h"
#include "py/objarray.h"
#include "py/runtime.h"
#include "py/stream.h"
#include "extmod/vfs.h"

#define REG(a) (*(volatile uint32_t *)(a))

// External memory, as tools/firmware/__init__.py has it. QEMU's loader device fills it before the board starts.
#if defined(QEMU_SOC_VIRT)
#define BASE (0x81000000)
#else
#define BASE (0x21000000)
#endif
#define HEAP_SIZE (REG(BASE)) // a word that whoever starts the board sets
#define HEAP (BASE + 0x1000)
#define IMAGE (BASE + 0x400000)
#define IMAGE_MAX (0xC00000)

// Heap

void __real_gc_init(void *start, void *end);

void __wrap_gc_init(void *start, void *end) {
    __real_gc_init((void *)HEAP, (char *)HEAP + (HEAP_SIZE ? HEAP_SIZE : 0x100000));
}

// Clock: a free-running counter of HZ ticks a second, extended to 64 bits each time it is read

#if defined(QEMU_SOC_VIRT)
#define HZ (10000000)
#define TIMER (0x0200bff8)
#define POLL_STDIN (*(volatile uint8_t *)0x10000005 & 1)

static void timer_start(void) {
}

static uint32_t timer_read(void) {
    return REG(TIMER);
}

#elif defined(QEMU_SOC_NRF51)
#define HZ (16000000)
#define TIMER (0x40008000)
#define POLL_STDIN (REG(0x40002108))

static void timer_start(void) {
    REG(TIMER + 0x508) = 3; // 32 bits
    REG(TIMER + 0x510) = 0; // no prescaler
    REG(TIMER) = 1;
}

static uint32_t timer_read(void) {
    REG(TIMER + 0x40) = 1; // capture
    return REG(TIMER + 0x540);
}

#else // QEMU_SOC_MPS2
#define HZ (25000000)
#define TIMER (0x40000000)
#define POLL_STDIN (REG(0x40004004) & 2)

static void timer_start(void) { // it counts down
    REG(TIMER + 8) = 0xffffffff;
    REG(TIMER + 4) = 0xffffffff;
    REG(TIMER) = 1;
}

static uint32_t timer_read(void) {
    return ~REG(TIMER + 4);
}
#endif

void __real_uart_init(void);

void __wrap_uart_init(void) { // the first thing that start-up code calls
    #if defined(__ARM_FP)
    REG(0xE000ED88) |= 0xf << 20; // turn the FPU on
    __asm volatile ("dsb\nisb");
    #endif
    timer_start();
    __real_uart_init();
}

static uint64_t ticks(void) {
    static uint64_t total;
    static uint32_t last;
    uint32_t now = timer_read();
    total += (uint32_t)(now - last);
    last = now;
    return total;
}

mp_uint_t mp_hal_ticks_cpu(void) {
    return ticks();
}

mp_uint_t mp_hal_ticks_us(void) {
    return ticks() / (HZ / 1000000);
}

mp_uint_t mp_hal_ticks_ms(void) {
    return ticks() / (HZ / 1000);
}

uint64_t mp_hal_time_ns(void) {
    return ticks() * 1000 / (HZ / 1000000);
}

void mp_hal_delay_us(mp_uint_t us) {
    uint64_t end = ticks() + (uint64_t)us * (HZ / 1000000);
    while (ticks() < end) {
    }
}

void mp_hal_delay_ms(mp_uint_t ms) {
    uint64_t end = ticks() + (uint64_t)ms * (HZ / 1000);
    while (ticks() < end) {
        mp_handle_pending(true);
    }
}

// Polling of stdin, for select (and so for mpremote mount)

uintptr_t __wrap_mp_hal_stdio_poll(uintptr_t flags) {
    uintptr_t ready = flags & MP_STREAM_POLL_WR;
    if ((flags & MP_STREAM_POLL_RD) && POLL_STDIN) {
        ready |= MP_STREAM_POLL_RD;
    }
    return ready;
}

// ROMFS partition

static const mp_obj_array_t segment = {{&mp_type_memoryview}, 'B', 0, IMAGE_MAX, (void *)IMAGE};

mp_obj_t mp_vfs_rom_ioctl(size_t n_args, const mp_obj_t *args) {
    mp_int_t command = mp_obj_get_int(args[0]);
    if (command == MP_VFS_ROM_IOCTL_GET_NUMBER_OF_SEGMENTS) {
        return MP_OBJ_NEW_SMALL_INT(1);
    }
    if (n_args >= 2 && mp_obj_get_int(args[1]) == 0) {
        uint8_t *image = (uint8_t *)IMAGE;
        switch (command) {
            case MP_VFS_ROM_IOCTL_GET_SEGMENT:
                return MP_OBJ_FROM_PTR(&segment);
            case MP_VFS_ROM_IOCTL_WRITE_PREPARE:
                if (n_args == 3 && (mp_uint_t)mp_obj_get_int(args[2]) <= IMAGE_MAX) {
                    memset(image, 0xff, mp_obj_get_int(args[2]));
                    return MP_OBJ_NEW_SMALL_INT(4);
                }
                break;
            case MP_VFS_ROM_IOCTL_WRITE:
                if (n_args == 4) {
                    mp_buffer_info_t from;
                    mp_get_buffer_raise(args[3], &from, MP_BUFFER_READ);
                    mp_uint_t at = mp_obj_get_int(args[2]);
                    if (at <= IMAGE_MAX && from.len <= IMAGE_MAX - at) {
                        memcpy(image + at, from.buf, from.len);
                        return MP_OBJ_NEW_SMALL_INT(0);
                    }
                }
                break;
            case MP_VFS_ROM_IOCTL_WRITE_COMPLETE:
                return MP_OBJ_NEW_SMALL_INT(0);
        }
    }
    return MP_OBJ_NEW_SMALL_INT(-MP_EINVAL);
}
