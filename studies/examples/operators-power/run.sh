#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Operators of PostgreSQL at rising numbers of workers: which configuration is the most efficient?
#   PLAN=plan.toml OUT=/var/tmp/study ./run.sh    (as root; see ../studies.sh)
set -eu
cd "$(dirname "$0")"
. ../studies.sh

"$qjoule" bench "$PLAN" -o "$OUT"
"$qjoule" bench analyse "$OUT" --response power_w,j_per_operation
"$qjoule" bench proportionality "$OUT" --plots "$OUT/figures"
published operators-power
