"""What searches of steps share: the spacing of their lattices, where a run is judged, and the step
half way.
"""

HALF_DECADE = 10**0.5  # the spacing of lattices of steps and of smoothings

# Passes at which a run of 100 is judged: dense at the start, where a noisy problem is fitted soon.
CHECKPOINTS = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    15,
    20,
    25,
    30,
    40,
    50,
    60,
    70,
    80,
    90,
    100,
)


def first_step(step: float, decay: float, steps: float) -> float:
    """Return the first step of a schedule first / t^decay that has come down to `step` half way.

    Searches run over the step half way, because the best one of it does not move with the decay.
    """
    return step * (steps / 2) ** decay
