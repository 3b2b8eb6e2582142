# SPDX-License-Identifier: Apache-2.0
"""What applications say of their own calls: the recorder's end of the driver shims.

Everything that arrives here was written by a program that anybody may have started: it is checked,
bounded, and believed in nothing but what it says of its own connections.
"""
