"""Pure maths on arrays: knows no configuration, environment or file."""
