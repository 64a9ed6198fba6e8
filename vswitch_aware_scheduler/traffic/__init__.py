# SPDX-License-Identifier: Apache-2.0
"""Traffic models: their estimation from samples and the sums of their rates.

Pure: numpy and the standard library only; no clock, no configuration, no I/O.
"""
