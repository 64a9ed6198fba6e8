# SPDX-License-Identifier: Apache-2.0
"""Reports the location of the tests to tempest.

There are no options. The tests run if tempest.conf lists VSwitchFilter in
``[compute-feature-enabled]/scheduler_enabled_filters``.
"""

import os

from tempest.test_discover import plugins

__all__ = ['VSwitchTempestPlugin']


class VSwitchTempestPlugin(plugins.TempestPlugin):
    """The entry point of ``tempest.test_plugins``."""

    def load_tests(self) -> tuple[str, str]:
        """Return (folder of the tests, folder of their package)."""
        folder = os.path.dirname(os.path.abspath(__file__))
        return (os.path.join(folder, 'tests'),
                os.path.dirname(os.path.dirname(folder)))

    def register_opts(self, conf):
        """Add no options.

        :param conf: configuration of tempest
        """

    def get_opt_lists(self):
        """Return no options."""
        return []
