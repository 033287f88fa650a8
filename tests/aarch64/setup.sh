#!/bin/sh
# Sets up what `make cross-aarch64` needs, in .cross/aarch64: a compiler with the standard library of 64-bit ARM, an emulator,
# and the libraries and the Python of the other side. Nothing of the machine is changed; packages come through its own apt,
# which verifies them, and their versions are those of packages.txt.
#
# A bare machine: Debian 12 on x86-64 with `apt-get install python3.11 python3.11-venv gcc libc6-dev git make curl`, and Rust
# as in the README. cargo is the machine's; the compiler that it calls is Debian's, since rustup's may have no other target.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cross=${CROSS:-$root/.cross/aarch64}
packages=$root/tests/aarch64/packages.txt
uv=${UV:-$root/.venv/bin/uv}
stamp=$cross/.packages

if [ -f "$stamp" ] && cmp -s "$packages" "$stamp"; then exit 0; fi
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || {
	echo "cross-aarch64 needs Debian 12's apt-get and dpkg-deb, of which this machine has none" >&2
	exit 1
}

rm -rf "$cross"
mkdir -p "$cross/apt/lists/partial" "$cross/apt/cache/archives/partial" "$cross/debs" "$cross/host" "$cross/root"

# apt with state of its own, so that it knows both architectures and needs no rights.
apt() {
	command apt-get -qq -o Dir::State="$cross/apt" -o Dir::State::Lists="$cross/apt/lists" -o Dir::State::status=/dev/null \
		-o Dir::Cache="$cross/apt/cache" -o APT::Architecture=amd64 -o APT::Architectures::=amd64 \
		-o APT::Architectures::=arm64 -o APT::Sandbox::User=root "$@"
}

echo "fetching Debian's packages for 64-bit ARM into .cross/aarch64"
apt update
grep -v '^#' "$packages" | while read -r name architecture version; do
	[ -n "$name" ] || continue
	(cd "$cross/debs" && apt download "$name:$architecture=$version") || {
		echo "$name:$architecture has no version $version any more; see tests/aarch64/packages.txt" >&2
		exit 1
	}
done

for package in "$cross"/debs/*.deb; do
	# The standard library of the other side lies beside the compiler's own.
	case $package in
	*_amd64.deb | */libstd-rust-*) dpkg-deb -x "$package" "$cross/host" ;;
	*) dpkg-deb -x "$package" "$cross/root" ;;
	esac
done
rm -rf "$cross/debs" "$cross/apt"

# Programs that find what was unpacked.
write() {
	cat > "$cross/$1"
	chmod +x "$cross/$1"
}
libraries="$cross/host/usr/lib/x86_64-linux-gnu:$cross/host/lib/x86_64-linux-gnu"
write rustc << END
#!/bin/sh
LD_LIBRARY_PATH=$libraries exec "$cross/host/usr/bin/rustc" --sysroot "$cross/host/usr" "\$@"
END
write objdump << END
#!/bin/sh
LD_LIBRARY_PATH=$libraries exec "$cross/host/usr/bin/aarch64-linux-gnu-objdump" "\$@"
END
write emulate << END
#!/bin/sh
exec "$cross/host/usr/bin/qemu-aarch64-static" -cpu \${CROSS_CPU:-max} -L "$cross/root" "\$@"
END
write python << END
#!/bin/sh
PYTHONHOME=$cross/root/usr PYTHONPATH="$cross/site:\$PYTHONPATH" \\
	exec "$cross/host/usr/bin/qemu-aarch64-static" -cpu \${CROSS_CPU:-max} -L "$cross/root" \\
	"$cross/root/usr/bin/python3.11" "\$@"
END

# What the run half and its tests need of Python packages, as the pins of pyproject.toml have them.
pin() { sed -n "s/^ *\"\($1==[^\"]*\)\".*/\1/p" "$root/pyproject.toml" | head -1; }
"$uv" pip install --quiet --target "$cross/site" --python-version 3.11 --python-platform aarch64-manylinux_2_28 \
	--only-binary :all: --python "$root/.venv/bin/python" "$(pin numpy)" "$(pin pytest)" "$(pin pytest-benchmark)" "$(pin ml_dtypes)"

cp "$packages" "$stamp"
