# SPDX-License-Identifier: Apache-2.0
"""States of a PostgreSQL backend, by version."""

from qjoule.servers.postgres.find import BackendStates, backend_states

__all__ = ["BackendStates", "backend_states"]
