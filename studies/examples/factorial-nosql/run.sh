#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A factorial design of servers and commands: ANOVA, Tukey, energy against time.
#   PLAN=plan.toml OUT=/var/tmp/study ./run.sh    (as root; see ../studies.sh)
set -eu
cd "$(dirname "$0")"
. ../studies.sh

"$qjoule" bench "$PLAN" -o "$OUT"
"$qjoule" bench analyse "$OUT" --response j_per_operation,wall_s
published factorial-nosql
