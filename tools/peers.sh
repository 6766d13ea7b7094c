#!/usr/bin/env bash
# What `make bench PART=clients` compares us with: other brokers from Debian, other people's clients and workers in build/peers, an
# environment of their own. On CI, as root, servers are installed when missing; elsewhere a row that misses one is left out.
set -euo pipefail

missing=()
for program in beanstalkd nats-server rabbitmq-server; do
    command -v "$program" > /dev/null || missing+=("$program")
done
if [ "${#missing[@]}" -gt 0 ]; then
    if [ -n "${CI:-}" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q > /dev/null
        apt-get install -q -y --no-install-recommends "${missing[@]}" > /dev/null
    else
        echo "peers: not installed here: ${missing[*]}. Their rows are left out." >&2
    fi
fi

want=bench/peers/requirements.txt
if [ ! -x build/peers/bin/python ] || [ "$want" -nt build/peers/.ready ]; then
    mkdir -p build
    "${PYTHON:-python3.11}" -m venv build/peers
    build/peers/bin/pip install -q -r "$want"
    touch build/peers/.ready
fi
