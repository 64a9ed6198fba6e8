# SPDX-License-Identifier: Apache-2.0
"""What every part of the package uses: errors, logs, texts, metrics."""
