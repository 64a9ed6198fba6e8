# SPDX-License-Identifier: Apache-2.0
"""The laboratory: what a scheduler or modeler never imports."""
