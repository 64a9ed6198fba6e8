# SPDX-License-Identifier: Apache-2.0
"""The Nova edge: the only package that imports nova."""
