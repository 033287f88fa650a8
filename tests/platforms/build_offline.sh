#!/usr/bin/env bash
# Builds the source distribution in FOLDER into a wheel where there is no network: in a network namespace without devices,
# with an empty cargo home.
#
#     tests/platforms/build_offline.sh FOLDER
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
archive=$(ls "$1"/pteron-*.tar.gz)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/cargo"
# The build system is there already, as a machine without a network has to bring it along.
unshare --map-root-user --net env PATH="$root/.venv/bin:$PATH" CARGO_HOME="$place/cargo" \
	"$root/.venv/bin/python" -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$place" "$archive"
ls -l "$place"/*.whl
"$root/.venv/bin/python" -m venv --system-site-packages "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --no-index --no-deps --force-reinstall "$place"/*.whl
cd "$place"
"$place/venv/bin/python" - "$root/schema/samples/linear_relu.pte" <<-END
	import sys
	import pteron
	assert "$place" in pteron.__file__, pteron.__file__
	program = pteron.load(sys.argv[1])
	print(program, program.methods)
END
