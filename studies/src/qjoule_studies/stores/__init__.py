# SPDX-License-Identifier: Apache-2.0
"""What go-ycsb and the Twitter pairs need of each server: a module with `YCSB` and `TWITTER`."""
