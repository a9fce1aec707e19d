"""Mutants that change nothing a test could see, by module and changed line, with the reason."""

EQUIVALENT: dict[tuple[str, str], str] = {}
