# SPDX-License-Identifier: Apache-2.0
"""The hosts of the cloud, their load and their budgets, from the store."""
