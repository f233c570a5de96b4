"""How the commands show things: tables, units, reports, a terminal."""
