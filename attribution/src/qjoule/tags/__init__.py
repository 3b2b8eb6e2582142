# SPDX-License-Identifier: Apache-2.0
"""Receives what applications report about their own calls: the recorder's end of the driver shims.

Any user may have started the program that sends these messages. So everything is checked and
bounded, and a program may report only on its own connections.
"""
