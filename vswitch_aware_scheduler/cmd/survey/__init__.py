# SPDX-License-Identifier: Apache-2.0
"""What the plugin would do for a cloud, from the cloud's last days.

Read-only: nothing but a store of its own is written.
"""
