#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A server at steps of its peak load: how closely does power follow load?
#   PLAN=plan.toml OUT=/var/tmp/study ./run.sh    (as root; see ../studies.sh)
set -eu
cd "$(dirname "$0")"
. ../studies.sh

"$qjoule" bench "$PLAN" -o "$OUT"
"$qjoule" bench proportionality "$OUT" --plots "$OUT/figures"
published energy-proportionality
