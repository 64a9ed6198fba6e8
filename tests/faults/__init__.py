# SPDX-License-Identifier: Apache-2.0
"""Faults of stores, clocks and services, made on purpose; run by __main__."""
