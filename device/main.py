# Runs at power-on, where it was copied: asks for an opening and writes the story. Ctrl-D leaves, for the usual prompt.
import scribe

try:
    scribe.chat()
except (OSError, ValueError, MemoryError) as error:
    print("scribe:", error)
