# What every study's run.sh does: sourced with the study's folder as working directory.
#   PLAN=plan.toml OUT=/var/tmp/study ./run.sh
# PLAN: small.toml (minutes, the default) or plan.toml (the study's own size: hours to days).
# OUT: where the study's directory is written; the same again goes on with it.

root=$(cd ../../.. && pwd)
qjoule=${QJOULE:-$root/.venv/bin/qjoule}
PLAN=${PLAN:-small.toml}
OUT=${OUT:-$PWD/out-${PLAN%.toml}}

# The numbers that the source printed, recomputed from each other.
published() {
	PYTHONPATH=$root/studies/examples "$root/.venv/bin/python" -m published "$@"
}

published_here() {
	PYTHONPATH=$root/studies/examples "$root/.venv/bin/python" -m published.gps_up_here "$@"
}
