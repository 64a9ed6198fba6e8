# SPDX-License-Identifier: Apache-2.0
"""The plugins that nova-scheduler loads. Only this package imports nova."""
