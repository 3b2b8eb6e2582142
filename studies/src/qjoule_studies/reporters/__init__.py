# SPDX-License-Identifier: Apache-2.0
"""Tables, documents and plots of its results."""
