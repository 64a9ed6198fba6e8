# SPDX-License-Identifier: Apache-2.0
"""The numerical core: traffic models, their estimation, their overlay.

Pure: numpy and the standard library only; no clock, no configuration, no I/O.
"""
