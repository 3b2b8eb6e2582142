# SPDX-License-Identifier: Apache-2.0
"""The view from another desk: an agent's snapshots over TLS, and who may see them."""
