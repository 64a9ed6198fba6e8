# SPDX-License-Identifier: Apache-2.0
"""The plugin in a real control plane of separate processes.

``python -m tests.cloud`` starts one, plays scenarios on its public API,
audits each and takes it down.
"""
