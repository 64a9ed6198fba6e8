# SPDX-License-Identifier: Apache-2.0
"""What is wrong and what is well again, told once."""


from vswitch_aware_scheduler import logs

__all__ = ['ProblemLog']

LOG = logs.get_logger(__name__)


class ProblemLog:
    """Logs a problem when it appears, changes or goes, and not in between."""

    def __init__(self):
        self._problems = {}

    def problems(self):
        """Return {topic: what is wrong in words}."""
        return dict(self._problems)

    def __call__(self, topic, problem):
        """Tell of one thing that can be well or not.

        :param topic: what it is, a short string
        :param problem: what is wrong in words, or None
        """
        known = self._problems.get(topic)
        if known == problem:
            return
        if problem is None:
            # Another thread may have told it already.
            self._problems.pop(topic, None)
            LOG.info('vswitch: %s is well again', topic)
            return
        self._problems[topic] = problem
        # The same problem in other figures (an age) is no news.
        if known is None or _words(known) != _words(problem):
            LOG.warning('vswitch: %s: %s', topic, problem)


def _words(text):
    return [word for word in text.split()
            if not any(letter.isdigit() for letter in word)]
