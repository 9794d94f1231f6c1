"""Whether a job that has failed starts again, and when: Flink's restart strategies, by Flink's options."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sqlstream.errors import JobError, OutageError, UserCodeError
from sqlstream.options import Options
from sqlstream.units import Duration, duration

PREFIX = "restart-strategy"
# Which errors of the user's code let a job start again.
USER_CODE = f"{PREFIX}.user-code"


@dataclass(frozen=True, slots=True)
class Attempt:
    """When an attempt to run a job began, and when it failed, by `units.elapsed`."""

    began: Duration
    failed: Duration


class RestartStrategy(ABC):
    """Decides whether a failed job starts again, from its attempts so far; all have failed, the last one just now."""

    @property
    @abstractmethod
    def limits(self) -> str:
        """The name of the strategy, and how many restarts it allows, for people."""

    @abstractmethod
    def delay(self, attempts: Sequence[Attempt]) -> Duration | None:
        """Return how long to wait before the next attempt, None if there is none: the job has failed for good."""

    @abstractmethod
    def needed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts that later decisions depend on. Others may be forgotten: a job may fail often in a year."""


@dataclass(frozen=True, slots=True)
class NoRestart(RestartStrategy):
    """`none`: a failed job does not start again."""

    @property
    def limits(self) -> str:
        return "none"

    def delay(self, attempts: Sequence[Attempt]) -> Duration | None:
        return None

    def needed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        return []


@dataclass(frozen=True, slots=True)
class FixedDelay(RestartStrategy):
    """`fixed-delay`: at most so many restarts (`attempts`), each after the same pause."""

    attempts: int
    pause: Duration

    @property
    def limits(self) -> str:
        """Return the strategy in words.

        >>> FixedDelay(1, Duration(5_000_000)).limits
        'fixed-delay: at most 1 restart'
        """
        return f"fixed-delay: at most {self.attempts} {'restart' if self.attempts == 1 else 'restarts'}"

    def delay(self, attempts: Sequence[Attempt]) -> Duration | None:
        """Return the pause.

        >>> strategy = FixedDelay(1, Duration(5))
        >>> once = Attempt(Duration(0), Duration(1))
        >>> strategy.delay([once]), strategy.delay([once, once])
        (5, None)
        """
        return self.pause if len(attempts) <= self.attempts else None

    def needed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        return list(attempts[-self.attempts - 1 :])


@dataclass(frozen=True, slots=True)
class FailureRate(RestartStrategy):
    """`failure-rate`: a restart after each failure, unless more than `most` attempts have failed within an interval."""

    interval: Duration
    most: int
    pause: Duration

    @property
    def limits(self) -> str:
        """Return the strategy in words.

        >>> FailureRate(Duration(60_000_000), 1, Duration(5_000_000)).limits
        'failure-rate: at most 1 failure in 1 min'
        """
        return f"failure-rate: at most {self.most} {'failure' if self.most == 1 else 'failures'} in {duration(self.interval)}"

    def delay(self, attempts: Sequence[Attempt]) -> Duration | None:
        """Return the pause.

        >>> strategy = FailureRate(Duration(10), 1, Duration(5))
        >>> first, soon, later = (Attempt(Duration(0), Duration(time)) for time in (1, 9, 12))
        >>> strategy.delay([first]), strategy.delay([first, soon]), strategy.delay([first, later])
        (5, None, 5)
        """
        since = attempts[-1].failed - self.interval
        recent = sum(attempt.failed > since for attempt in attempts)
        return self.pause if recent <= self.most else None

    def needed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        return list(attempts[-self.most - 1 :])


@dataclass(frozen=True, slots=True)
class ExponentialDelay(RestartStrategy):
    """`exponential-delay`: a restart after a pause that grows from `initial` to `most`; it is `initial` again after a good run.

    A run is good if it took at least `reset`. Without a good run in between, at most so many restarts (`attempts`, None: any
    number). `jitter` is the fraction by which each pause varies at random.
    """

    initial: Duration
    most: Duration
    multiplier: float
    reset: Duration
    jitter: float
    attempts: int | None

    @property
    def limits(self) -> str:
        """Return the strategy in words.

        >>> ExponentialDelay(Duration(10), Duration(30), 2.0, Duration(60_000_000), 0.0, 3).limits
        'exponential-delay: at most 3 restarts until the job has run for 1 min'
        """
        if self.attempts is None:
            return "exponential-delay: any number of restarts"
        restarts = "restart" if self.attempts == 1 else "restarts"
        return f"exponential-delay: at most {self.attempts} {restarts} until the job has run for {duration(self.reset)}"

    def delay(self, attempts: Sequence[Attempt]) -> Duration | None:
        """Return the pause, varied by the jitter.

        >>> strategy = ExponentialDelay(Duration(10), Duration(30), 2.0, Duration(1000), 0.0, None)
        >>> first = Attempt(Duration(0), Duration(1))
        >>> [strategy.delay([first] * count) for count in (1, 2, 3, 9)]
        [10, 20, 30, 30]
        >>> strategy.delay([first, first, Attempt(Duration(5), Duration(1005))])
        10
        """
        count = len(self._since_reset(attempts))
        if self.attempts is not None and count > self.attempts:
            return None
        pause = self.initial
        for _ in range(count - 1):
            pause = min(Duration(round(pause * self.multiplier)), self.most)
        return Duration(round(min(pause, self.most) * (1 + random.uniform(-self.jitter, self.jitter))))

    def needed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts since the last good run; if any number is allowed, as many as lead to the longest pause.

        >>> strategy = ExponentialDelay(Duration(10), Duration(30), 2.0, Duration(1000), 0.0, None)
        >>> first = Attempt(Duration(0), Duration(1))
        >>> attempts = strategy.needed([first] * 50)
        >>> len(attempts), strategy.delay(attempts)
        (3, 30)
        """
        recent = list(self._since_reset(attempts))
        if self.attempts is not None:
            return recent[-self.attempts - 1 :]
        count, pause = 1, float(self.initial)
        while self.multiplier > 1 and pause < self.most and count < len(recent):
            count, pause = count + 1, pause * self.multiplier
        return recent[-count:]

    def _since_reset(self, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return the last attempt that ran for at least `reset`, and all later attempts; all attempts if none ran for so long."""
        last = 0
        for number, attempt in enumerate(attempts):
            if attempt.failed - attempt.began >= self.reset:
                last = number
        return attempts[last:]


def covered_errors(options: Options) -> tuple[type[JobError], ...]:
    """Return the classes of errors after which the restart strategy decides; other errors end the job."""
    return (OutageError, UserCodeError) if options.text(USER_CODE).lower() == "any" else (OutageError,)


def strategy_of(options: Options, *, bounded: bool) -> RestartStrategy:
    """Return the strategy that the options ask for; by default none for bounded input, else `exponential-delay`."""
    kind = options.text(f"{PREFIX}.type").lower() or ("none" if bounded else "exponential-delay")
    if kind == "none":
        return NoRestart()
    at = f"{PREFIX}.{kind}"
    if kind == "fixed-delay":
        return FixedDelay(int(options.text(f"{at}.attempts")), options.duration(f"{at}.delay"))
    if kind == "failure-rate":
        most = int(options.text(f"{at}.max-failures-per-interval"))
        return FailureRate(options.duration(f"{at}.failure-rate-interval"), most, options.duration(f"{at}.delay"))
    attempts = options.text(f"{at}.attempts-before-reset-backoff").lower()
    return ExponentialDelay(
        initial=options.duration(f"{at}.initial-backoff"),
        most=options.duration(f"{at}.max-backoff"),
        multiplier=float(options.text(f"{at}.backoff-multiplier")),
        reset=options.duration(f"{at}.reset-backoff-threshold"),
        jitter=float(options.text(f"{at}.jitter-factor")),
        attempts=None if attempts == "infinite" else int(attempts),
    )
