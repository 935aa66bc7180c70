#!/usr/bin/env bash
# Everything of the Binder image that needs no docker: repo2docker reads the folder and chooses how to build,
# then a clean environment in a clean clone installs what the image would, and takes its last step.
# Not tried: the packages of the image itself, its limits of memory, and its time-outs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf 'binder check: %s\n' "$*"; }

git clone -q . "$work/clone"
"$python" -m venv "$work/reader"
"$work/reader/bin/pip" install -q jupyter-repo2docker
"$work/reader/bin/jupyter-repo2docker" --no-build --debug "$work/clone" >"$work/dockerfile" 2>&1
grep -q 'binder/requirements.txt' "$work/dockerfile"
grep -q './binder/postBuild' "$work/dockerfile"
say "repo2docker reads binder/ and takes its requirements and its last step"

"$python" -m venv "$work/image"
export PATH="$work/image/bin:$PATH"
cd "$work/clone"
pip install -q -r binder/requirements.txt
./binder/postBuild
opened=$(python -c 'import json; print(json.load(open("binder/jupyter_lab_config.json"))["LabApp"]["default_url"])')
jupyter execute --timeout=120 --output=ran.ipynb "${opened#/lab/tree/}"
say "what it opens, $opened, runs in the environment that it makes"
