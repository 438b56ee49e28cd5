"""How a run ended: the statuses, each with its sentence."""

import enum


class Status(enum.StrEnum):
    """converged, almost, budget, stopped, stalled or diverged.

    >>> Status.budget == "budget", Status.stalled.sentence
    (True, 'No step decreases F any more, at this accuracy of the arithmetic.')
    """

    converged = "converged"
    almost = "almost"
    budget = "budget"
    stopped = "stopped"
    stalled = "stalled"
    diverged = "diverged"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Status.converged: "The tolerance was reached.",
    Status.almost: "The accuracy of the arithmetic does not allow a certificate of the tolerance.",
    Status.budget: "The budget was spent.",
    Status.stopped: "The stop rule said so.",
    Status.stalled: "No step decreases F any more, at this accuracy of the arithmetic.",
    Status.diverged: "The iterates diverged; w is the best finite one seen.",
}
