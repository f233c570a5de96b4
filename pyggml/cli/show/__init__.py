"""How the commands show things: reports, tables, progress, a terminal."""
