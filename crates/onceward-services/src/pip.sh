# Installs the Python package $2 into the directory $1/packages, executables in bin/ there.
set -eu
python=python3
# Debian's Python has pip in virtual environments only.
python3 -m pip --version >/dev/null 2>&1 || {
    python3 -m venv "$1/venv"
    python=$1/venv/bin/python
}
"$python" -m pip install --quiet --target "$1/packages" "$2"
rm -rf "$1/venv"
