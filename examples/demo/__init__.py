"""The main job on real input: see ``__main__``."""
