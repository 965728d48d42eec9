"""pytest plugin. Imports nothing heavy: what it offers is loaded when a test asks for it."""
