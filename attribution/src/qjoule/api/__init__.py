# SPDX-License-Identifier: Apache-2.0
"""The Python API of qjoule: names that other distributions may import.

Each module here lists its names in `__all__`, and says in one line what they are for. All else in
`qjoule` may change at any time. A module in `__all__` is public as a whole.
"""

from qjoule import __version__
from qjoule.errors import QjouleError, UsageError

__all__ = ["QjouleError", "UsageError", "__version__"]
