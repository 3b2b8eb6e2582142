# SPDX-License-Identifier: Apache-2.0
"""Reporters: format attributions as text, tables, JSON and files. They compute no energy."""
