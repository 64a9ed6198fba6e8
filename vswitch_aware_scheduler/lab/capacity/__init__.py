# SPDX-License-Identifier: Apache-2.0
"""The cost of packets for switches: model, fit, published tables."""
