"""The frameworks' own suites, run through capture, file and engines; see ``__main__``."""


class NotApplicable(Exception):
    """A case that the framework itself cannot run here: it does not count."""
