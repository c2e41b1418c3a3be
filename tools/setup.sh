#!/usr/bin/env bash
# Installs what the build and the tests need: Debian packages, and pinned Python packages in .venv.
# Idempotent; when nothing is missing it only looks. `setup.sh lint` adds the tools of make lint,
# `setup.sh fuzz` those of tools/fuzz.sh, `setup.sh peers` what llama.cpp is built with;
# `setup.sh engine` is for the engine alone, which needs no Python, `setup.sh chat` for it and a Python
# that fetches a model. TORCH=DIR uses an existing torch instead.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake make ninja-build git libfmt-dev libcli11-dev nlohmann-json3-dev libxxhash-dev
  libhwy-dev libsentencepiece-dev libutf8proc-dev)
[ "${1:-}" = engine ] || packages+=(python3 python3-venv)
[[ "${1:-}" = @(engine|chat) ]] || packages+=(libgloo-dev libgtest-dev pkg-config)
[ "${1:-}" != lint ] || packages+=(clang-format-19 clang-tidy-19)
[ "${1:-}" != peers ] || packages+=(libopenblas-dev pkg-config)
[ "${1:-}" != fuzz ] || packages+=(clang-19 libclang-rt-19-dev)
is_missing() {
  ! dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}
missing=()
for package in "${packages[@]}"; do
  ! is_missing "$package" || missing+=("$package")
done
if ((${#missing[@]})); then
  if [ "$(id -u)" = 0 ]; then
    as_root=()
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=(sudo)
  else
    echo "setup: these Debian packages must be installed by an administrator: ${missing[*]}" >&2
    exit 2
  fi
  ! is_missing ccache || missing+=(ccache) # makes rebuilds faster; nothing needs it
  echo "setup: installing Debian packages: ${missing[*]}" >&2
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    exit 1
  fi
  rm -f "$log"
fi
[[ "${1:-}" != @(engine|chat) ]] || exit 0

TORCH=${TORCH:-}
if [ -n "$TORCH" ] && [ ! -e "$TORCH/lib/libtorch_cpu.so" ]; then
  echo "setup: TORCH must be a folder with include/ and lib/libtorch_cpu.so, got $TORCH" >&2
  exit 2
fi

want="$(cat tools/requirements.txt) TORCH=$TORCH"
if [ "$(cat .venv/.installed 2>/dev/null)" != "$want" ]; then
  echo "setup: installing Python packages into .venv" >&2
  # Debian's own: python3-venv belongs to it, whatever else is on the PATH.
  .venv/bin/python -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear .venv
  pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  rm -f "$site/bmojo_torch.pth"
  if [ -z "$TORCH" ]; then
    "${pip[@]}" --constraint tools/requirements.txt "$(grep '^torch==' tools/requirements.txt)"
  elif [ -e "$TORCH/__init__.py" ]; then
    (cd "$TORCH/.." && pwd) >"$site/bmojo_torch.pth" # Python finds the same torch, after .venv's own
  else
    echo "setup: $TORCH has no Python torch: tests against transformers will be skipped" >&2
  fi
  grep -v '^torch==' tools/requirements.txt >.venv/requirements.txt
  "${pip[@]}" --no-deps --requirement .venv/requirements.txt
  printf '%s' "$want" >.venv/.installed
fi

torch=$TORCH
[ -n "$torch" ] || torch=$(echo .venv/lib/python3*/site-packages/torch)
torch=$(cd "$torch" && pwd)
# Written only when it changes: CMake configures again when this file is newer.
[ "$(cat .venv/.torch 2>/dev/null)" = "$torch" ] || echo "$torch" >.venv/.torch
