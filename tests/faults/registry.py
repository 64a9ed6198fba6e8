# SPDX-License-Identifier: Apache-2.0
"""The list of faults: named cases, each of which makes faults of one kind.

A case is a function without arguments. It makes its faults one after the
other, checks after each that nothing is lost and all goes on, and returns how
many were survived. It raises AssertionError at the first that was not.
"""

import contextlib
import unittest

__all__ = ['CASES', 'CLEANUP', 'Skipped', 'check', 'fault']

#: {name: (kind, function)}, in the order of registration.
CASES = {}

#: What is called after the last case: servers that several cases share.
CLEANUP = contextlib.ExitStack()

Skipped = unittest.SkipTest

#: assertEqual and the others.
check = unittest.TestCase()


def fault(kind, name=None):
    """Register a case.

    :param kind: of its faults, such as 'killed writer'; several cases may be
        of one kind
    :param name: of the case, None: that of the function
    """
    def register(function):
        key = name or function.__name__
        if key in CASES:
            raise ValueError(f'case {key}: registered twice')
        CASES[key] = kind, function
        return function

    return register
