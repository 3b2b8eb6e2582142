# SPDX-License-Identifier: Apache-2.0
"""Real database servers for tests: context managers that start them and reliably stop them.

    with mariadb_server("--thread-handling=pool-of-threads") as server:
        server.connect(), server.pid, server.port, server.socket, server.tgids

`servers.mariadb`, `servers.mysql` and `servers.postgres` hold one each; pytest fixtures
(`mariadb`, `mariadb_pool`, `mysql80`, `postgres`) are in `conftest.py`.
"""
