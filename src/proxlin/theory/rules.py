"""One family of rules: what paired differences show, and what they could have shown.

    d_1, ..., d_m      one difference for each unit (seed, fold, draw); what shares a unit is averaged first
    low, high          mean +- t s / sqrt m
    equal              -band <= low and high <= band, the band being the largest difference that does not matter
    more, less         0 < low, high < 0
    not resolved       else: absence of evidence, which is no evidence of absence

Fewer units never make two methods equal: the interval has to fit into the band. Band and level are stated before
the run that they judge.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy import special

from .statistics import TINY, binomial_interval, t_interval

Finding = Literal["equal", "more", "less", "not resolved"]
Judgement = Literal[
    "reproduced", "not reproduced", "equal beyond the rule", "not resolved"
]
Question = Literal["more", "less", "equal", "not more", "at least", "always"]

POWER = 0.8  # of what "could have been seen" and "would decide" mean
MOST = 10**6  # units; more are out of reach


@dataclass(frozen=True)
class Comparison:
    """The mean of paired differences with its interval: what it shows, and what it could have shown.

    Parameters
    ----------
    mean : a number
        Of the differences, one for each unit; of logarithms of ratios if `ratio`.
    low : a number
        The lower end of the interval of the mean.
    high : a number
        Its upper end.
    units : an integer
        The number of independent units.
    level : a number between 0 and 1
        That of the interval.
    ratio : True or False
        Whether the differences are logarithms of ratios, shown as shares: exp(mean) - 1.

    See Also
    --------
    theory.compare : makes one.
    theory.Rule : judges a claim by one.

    Examples
    --------
    >>> import proxlin as px
    >>> found = px.theory.compare([0.1, 0.2, 0.3, 0.2])
    >>> found.finding(band=0.05), round(found.detectable, 3)
    ('more', 0.17)
    """

    mean: float
    low: float
    high: float
    units: int
    level: float = 0.95
    ratio: bool = False

    def finding(self, band: float = 0.0) -> Finding:
        """Return "equal", "more", "less" or "not resolved", against the band of differences that do not
        matter.

        Parameters
        ----------
        band : a number
            The largest difference that does not matter; a share if `ratio`.

        Returns
        -------
        a word
            What the interval shows.
        """
        edge = self.scaled(band)
        if -edge <= self.low and self.high <= edge:
            return "equal"
        if self.low > 0:
            return "more"
        if self.high < 0:
            return "less"
        return "not resolved"

    def scaled(self, difference: float) -> float:
        """Return a difference as people state it on the scale of the mean.

        Parameters
        ----------
        difference : a number
            A share if `ratio`, else a difference.

        Returns
        -------
        a number
            log(1 + share), or the difference itself.
        """
        if self.ratio:
            return math.log1p(difference)
        return difference

    def shown(self, number: float) -> float:
        """Return a number on the scale of the mean as people read it.

        Parameters
        ----------
        number : a number
            Such as `mean`.

        Returns
        -------
        a number
            exp(number) - 1 if `ratio`, else the number itself.
        """
        if not self.ratio:
            return number
        # beyond it exp overflows
        return math.expm1(min(number, 700.0))

    @property
    def detectable(self) -> float:
        """Return the smallest difference that this run would have shown with probability 0.8.

        Returns
        -------
        a number
            (t + t_0.8) s / sqrt m, with the spread s of its units; a share if `ratio`.
        """
        if not math.isfinite(self.high - self.low):
            return math.inf
        return self.shown(self._half(self.units) + self._power(self.units))

    def needed(self, target: float) -> int | None:
        """Return how many units would tell a difference of `target` from 0 with probability 0.8.

        Parameters
        ----------
        target : a number
            The distance to tell, on the scale of the mean.

        Returns
        -------
        an integer, or None
            None where a million would not do, or where one unit has no spread.
        """
        if not target > 0 or not math.isfinite(self.high - self.low):
            return None
        few = 2
        most = MOST
        if self._half(most) + self._power(most) > target:
            return None
        while few < most:
            middle = (few + most) // 2
            if self._half(middle) + self._power(middle) > target:
                few = middle + 1
            else:
                most = middle
        return few

    def _half(self, units: int) -> float:
        """Return half of the interval that so many units of this spread would have."""
        return self._error(units) * _t(units, (1 + self.level) / 2)

    def _power(self, units: int) -> float:
        return self._error(units) * _t(units, POWER)

    def _error(self, units: int) -> float:
        """Return s / sqrt(units), with s from the interval of this run."""
        half = (self.high - self.low) / 2
        spread = half * math.sqrt(self.units) / _t(self.units, (1 + self.level) / 2)
        return spread / math.sqrt(units)


def _t(units: int, level: float) -> float:
    return float(special.stdtrit(units - 1, level))


def compare(
    differences: Sequence[float] | np.ndarray,
    units: Sequence[Hashable] | np.ndarray | None = None,
    level: float = 0.95,
    ratio: bool = False,
) -> Comparison:
    """Return the mean of paired differences and its t interval over independent units.

    Parameters
    ----------
    differences : a list of numbers
        One for each pair of runs.
    units : a list, or None
        The unit of each difference, such as its seed; those of one unit are averaged first. None:
        every difference is a unit.
    level : a number between 0 and 1
        That of the interval.
    ratio : True or False
        Whether the differences are logarithms of ratios.

    Returns
    -------
    a `Comparison`
        The mean, its interval, and the number of units.

    Raises
    ------
    ValueError
        There is no difference, or there are not as many units as differences.

    See Also
    --------
    theory.Comparison : what comes back.
    theory.t_interval : the interval alone.

    Examples
    --------
    >>> import proxlin as px
    >>> px.theory.compare([1.0, 3.0, 2.0, 2.0], units=["a", "a", "b", "b"]).units
    2
    >>> px.theory.compare([0.001, -0.002, 0.001]).finding(band=0.01)
    'equal'
    >>> px.theory.compare([0.001, -0.002, 0.001]).finding(band=0.001)
    'not resolved'
    """
    values = np.asarray(differences, float)
    if not values.size:
        raise ValueError("There is no difference to compare; give one at least.")
    if units is not None:
        if len(units) != len(values):
            raise ValueError(
                f"There are {len(values)} differences, but {len(units)} units."
            )
        names = list(dict.fromkeys(units))
        places = np.asarray([names.index(unit) for unit in units])
        values = np.asarray([values[places == j].mean() for j in range(len(names))])
    mean, low, high = t_interval(values, level)
    return Comparison(mean, low, high, len(values), level, ratio)


def compare_ratios(
    one: Sequence[float] | np.ndarray,
    two: Sequence[float] | np.ndarray,
    level: float = 0.95,
) -> Comparison:
    """Return the comparison of log(one / two), pair by pair; a loss of 0 is taken as TINY.

    >>> round(compare_ratios([2.0, 2.0], [1.0, 1.0]).shown(math.log(2)), 3)
    1.0
    """
    pair = np.asarray([one, two], float)
    if pair.size and pair.min() < 0:
        raise ValueError(
            "Losses are compared by their ratio; these have negative values, so compare differences."
        )
    logs = np.log(np.maximum(pair, TINY))
    return compare(logs[0] - logs[1], level=level, ratio=True)


@dataclass(frozen=True)
class Share:
    """So many of some independent trials were as stated, where a share of them was promised.

    Parameters
    ----------
    successes : an integer
        The trials that were as stated.
    trials : an integer
        All of them.
    promised : a number between 0 and 1
        The share that was promised.
    level : a number between 0 and 1
        That of Clopper and Pearson's interval.

    See Also
    --------
    theory.binomial_interval : the interval.
    theory.Rule : judges a claim by one.

    Examples
    --------
    >>> import proxlin as px
    >>> few = px.theory.Share(12, 12, 0.9)
    >>> few.needed(), px.theory.Share(36, 36, 0.9).low >= 0.9
    (36, True)
    """

    successes: int
    trials: int
    promised: float
    level: float = 0.95

    @property
    def low(self) -> float:
        """Return the lower end of the interval of the share.

        Returns
        -------
        a number
            0 without a trial.
        """
        if not self.trials:
            return 0.0
        return binomial_interval(self.successes, self.trials, self.level)[0]

    @property
    def high(self) -> float:
        """Return the upper end of the interval of the share.

        Returns
        -------
        a number
            1 without a trial.
        """
        if not self.trials:
            return 1.0
        return binomial_interval(self.successes, self.trials, self.level)[1]

    @property
    def detectable(self) -> float | None:
        """Return the largest share below the promised one that this run would have told from it, with
        probability 0.8.

        Returns
        -------
        a number, or None
            None where it would have told none. Of a promise without exceptions, the share of kept ones
            at which one exception would have been seen.
        """
        if not self.trials:
            return None
        if self.promised >= 1:
            return (1 - POWER) ** (1 / self.trials)
        refuting = [
            x
            for x in range(self.trials + 1)
            if binomial_interval(x, self.trials, self.level)[1] < self.promised
        ]
        if not refuting:
            return None
        x = max(refuting)
        # P(X <= x | share) = POWER
        return float(special.betaincinv(x + 1, self.trials - x, 1 - POWER))

    def needed(self) -> int | None:
        """Return how many trials with this share of successes would decide; 36 of 36 are at least 0.9.

        Returns
        -------
        an integer, or None
            None where the share is the promised one, or there was no trial.
        """
        if not self.trials or not 0 < self.promised < 1:
            return None
        share = self.successes / self.trials
        for trials in range(1, 10_000):
            found = Share(round(share * trials), trials, self.promised, self.level)
            if found.low >= self.promised or found.high < self.promised:
                return trials
        return None


@dataclass(frozen=True)
class Rule:
    """How a claim is judged, stated before the run: what it asks, and the band of differences that do
    not matter.

        asks        reproduced              not reproduced          equal beyond the rule
        more        interval above 0        interval below 0        interval inside the band
        less        interval below 0        interval above 0        interval inside the band
        equal       inside the band         outside of the band
        not more    below the upper edge    above the upper edge
        at least    share >= the promised   share < the promised
        always      no exception            one exception

    Everything else is "not resolved". An interval inside the band is never a victory.

    Parameters
    ----------
    asks : a word
        "more", "less", "equal" or "not more" of a difference; "at least" or "always" of a share.
    band : a number
        The largest difference that does not matter; a share for ratios.
    level : a number between 0 and 1
        That of the intervals.
    seen : a tuple of integers
        The seeds of `proxlin reproduce` whose results were seen before the rule was stated: for them it is
        post hoc.

    Raises
    ------
    ValueError
        asks is another word, the band is negative, or the level is no share.

    See Also
    --------
    theory.compare : makes a `Comparison`.
    theory.Share : counts trials.

    Examples
    --------
    >>> import proxlin as px
    >>> rule = px.theory.Rule("more", band=0.01)
    >>> rule.judge(px.theory.compare([0.2, 0.3, 0.2, 0.25]))
    'reproduced'
    >>> rule.judge(px.theory.compare([0.001, 0.002, 0.001, 0.0]))
    'equal beyond the rule'
    >>> rule.judge(px.theory.compare([0.2, -0.1]))
    'not resolved'
    """

    asks: str
    band: float = 0.0
    level: float = 0.95
    seen: tuple[int, ...] = ()

    def __post_init__(self):
        if self.asks not in get_args(Question):
            raise ValueError(
                f"a rule asks {', '.join(get_args(Question))}; this one asks {self.asks!r}."
            )
        if not self.band >= 0 or not 0 < self.level < 1:
            raise ValueError(
                "the band of a rule must not be negative, and its level lies between 0 and 1."
            )

    def judge(self, found: Comparison | Share) -> Judgement:
        """Return what the runs say of the claim.

        Parameters
        ----------
        found : a `Comparison`, or a `Share`
            What was measured.

        Returns
        -------
        a text
            "reproduced", "not reproduced", "equal beyond the rule" or "not resolved".

        Raises
        ------
        TypeError
            The rule asks a share, and gets differences; or the reverse.
        """
        self._check(found)
        if isinstance(found, Share):
            return self._judge_share(found)
        edge = found.scaled(self.band)
        if self.asks == "equal":
            return _judged(
                found.finding(self.band) == "equal",
                found.low > edge or found.high < -edge,
            )
        if self.asks == "not more":
            return _judged(found.high <= edge, found.low > edge)
        finding = found.finding(self.band)
        if finding == "equal":
            return "equal beyond the rule"
        return _judged(finding == self.asks, finding != "not resolved")

    def needed(self, found: Comparison | Share) -> int | None:
        """Return how many units would decide, if their mean and spread stay as they are.

        Parameters
        ----------
        found : a `Comparison`, or a `Share`
            What was measured.

        Returns
        -------
        an integer, or None
            None where no number of them is in reach.
        """
        self._check(found)
        if isinstance(found, Share):
            return found.needed()
        edge = found.scaled(self.band)
        if self.asks == "equal":
            return found.needed(abs(edge - abs(found.mean)))
        if self.asks == "not more":
            return found.needed(abs(edge - found.mean))
        return found.needed(max(abs(found.mean), edge - abs(found.mean)))

    def sentence(self, ratio: bool = True) -> str:
        """Return the rule in words.

        Parameters
        ----------
        ratio : True or False
            Whether the band is a share.

        Returns
        -------
        a text
            One sentence.
        """
        band = f"{self.band:.3g}"
        if ratio:
            band = f"{100 * self.band:.3g} %"
        interval = f"the {100 * self.level:g} % interval"
        within = f"equal beyond the rule if it lies within {band} of 0"
        return {
            "more": f"Reproduced if {interval} lies above 0, not reproduced if below, {within}.",
            "less": f"Reproduced if {interval} lies below 0, not reproduced if above, {within}.",
            "equal": f"Reproduced if {interval} lies within {band} of 0, not reproduced if it lies outside of that.",
            "not more": f"Reproduced if {interval} ends below {band}, not reproduced if it begins above it.",
            "at least": f"Reproduced if {interval} of the share begins at the promised one or above, not reproduced if "
            "it ends below.",
            "always": "Reproduced if there is no exception, not reproduced if there is one.",
        }[self.asks]

    def _check(self, found: Comparison | Share) -> None:
        shares = self.asks in ("at least", "always")
        if shares != isinstance(found, Share):
            raise TypeError(
                f"a rule that asks {self.asks!r} judges a {'Share' if shares else 'Comparison'}; it got "
                f"{type(found).__name__}."
            )

    def _judge_share(self, found: Share) -> Judgement:
        if self.asks == "always":
            if not found.trials:
                return "not resolved"
            return _judged(found.successes == found.trials, True)
        return _judged(found.low >= found.promised, found.high < found.promised)


def _judged(holds: Any, fails: Any) -> Judgement:
    if holds:
        return "reproduced"
    if fails:
        return "not reproduced"
    return "not resolved"
