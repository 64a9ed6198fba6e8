# SPDX-License-Identifier: Apache-2.0
"""The modeler: one pass that learns traffic models, and its service."""
