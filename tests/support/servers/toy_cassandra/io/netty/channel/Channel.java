// SPDX-License-Identifier: Apache-2.0
package io.netty.channel;

public interface Channel {}
