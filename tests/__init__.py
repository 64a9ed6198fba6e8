# SPDX-License-Identifier: Apache-2.0
"""All tests. What is set here holds for every suite."""

import gc

import hypothesis

# A test votes the same on every run and on every machine: no random seed, and
# no verdict on how long an example took while something else was running.
hypothesis.settings.register_profile(
    'vote', deadline=None, derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile('vote')

# The garbage collector looked through the modules of Nova again and again,
# which took a fifth of the time of the functional tests.
gc.set_threshold(20_000, 20, 100)
