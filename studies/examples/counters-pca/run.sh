#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hardware counters of servers under YCSB: ratios, components, clusters.
#   PLAN=plan.toml OUT=/var/tmp/study ./run.sh    (as root; see ../studies.sh)
set -eu
cd "$(dirname "$0")"
. ../studies.sh

"$qjoule" bench "$PLAN" -o "$OUT"
# A machine without counters has nothing to characterise, and the command says so.
"$qjoule" characterise "$OUT"/runs/*.qjoule --by trace || [ "$PLAN" = small.toml ]
published counters-pca
