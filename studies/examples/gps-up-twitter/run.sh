#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The thesis's pairs of queries: speedup, greenup and powerup.
#   PLAN=plan.toml OUT=/var/tmp/study ./run.sh    (as root; see ../studies.sh)
set -eu
cd "$(dirname "$0")"
. ../studies.sh

"$qjoule" bench "$PLAN" -o "$OUT"
published_here "$OUT"
published gps-up-twitter
