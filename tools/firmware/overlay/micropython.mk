SRC_USERMOD_C += $(USERMOD_DIR)/overlay.c
CFLAGS_USERMOD += -I$(USERMOD_DIR)
LDFLAGS_USERMOD += -Wl,--wrap=mp_hal_stdio_poll -Wl,--wrap=uart_init -Wl,--wrap=gc_init
