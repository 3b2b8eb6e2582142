# SPDX-License-Identifier: Apache-2.0
"""VoltDB: procedures on site threads of a JVM."""
