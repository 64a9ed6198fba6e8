# SPDX-License-Identifier: Apache-2.0
"""The fleet as one HTML page.

``data`` reads plain data from the store, ``pictures`` draws, ``page`` creates
the HTML, ``server`` serves it on this machine. Reads no configuration.
"""
