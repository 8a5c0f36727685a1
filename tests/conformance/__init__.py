"""The frameworks' own suites, run through capture, file and engines; see ``__main__``."""
