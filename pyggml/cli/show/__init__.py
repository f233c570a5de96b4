"""Terminal output of commands: reports, tables, progress bars, word wrapping."""
