# SPDX-License-Identifier: Apache-2.0
"""OpenStack services over HTTP: requests, retries and paging."""
