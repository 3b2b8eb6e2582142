# SPDX-License-Identifier: Apache-2.0
"""FerretDB: MongoDB's protocol, served by goroutines."""
