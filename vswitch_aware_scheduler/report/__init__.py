# SPDX-License-Identifier: Apache-2.0
"""The fleet as one HTML page.

``data`` gathers plain data from the store, ``pictures`` draws, ``page`` makes
the HTML, ``server`` serves it on this machine. Knows no configuration.
"""
