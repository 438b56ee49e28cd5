"""What the user of a table's fit asked for."""

from dataclasses import dataclass

from .losses import QUANTILE

CONVEX = ("l2", "l1", "huber", "squared")
LOSSES = (*CONVEX, "quantile", "mm")  # that a table is fitted by, as users name them


@dataclass(frozen=True)
class Asked:
    """Targets, the loss by its name ("quantile 0.9" has its level), and the model.

    `errors` says how standard errors are found, one of `linear.ERRORS`.
    """

    targets: tuple[str, ...]
    loss: str = "l2"
    hidden: int = 64
    solver: str = "auto"
    seed: int = 0
    errors: str = "formula"
    # the column that says how much a row counts
    weights: str | None = None

    @property
    def level(self) -> float | None:
        """Return the level of a quantile, None for any other loss."""
        if not self.loss.startswith(QUANTILE):
            return None
        return float(self.loss.removeprefix(QUANTILE))


def shown_loss(loss: str) -> str:
    """Return the name of a loss as a reader knows it."""
    return {"huber": "Huber", "squared": "least squares", "mm": "MM"}.get(loss, loss)
