"""For lessons: exercises that check themselves, and the course: ``kl.teach``."""

from kernelab.teach.exercises import NotYet, check

__all__ = ["NotYet", "check"]
