#!/usr/bin/env bash
# The programs from Debian that some tests and the benchmark need beside Python: redis-server and redis-cli; Sidekiq and
# npm (for BullMQ) write what the importers of the pipeline are tested with; nginx stands before three gateways; chromium
# looks at the console, promtool at alert rules, systemd-analyze at the unit.
# On CI, as root, they are installed when missing. Elsewhere this only says what is missing: the tests that
# need them are skipped then.
set -euo pipefail

declare -A package=([redis-server]=redis-server [redis-cli]=redis-tools [sidekiq]=ruby-sidekiq [npm]=npm
    [nginx]=nginx-light [chromium]=chromium [promtool]=prometheus [systemd-analyze]=systemd)
missing=()
for program in "${!package[@]}"; do
    PATH=$PATH:/usr/sbin command -v "$program" > /dev/null || missing+=("${package[$program]}")
done
[ "${#missing[@]}" -eq 0 ] && exit 0

if [ -n "${CI:-}" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    echo "servers: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q > /dev/null
    apt-get install -q -y --no-install-recommends "${missing[@]}" > /dev/null
    exit 0
fi

echo "servers: not installed here: ${missing[*]}. Tests that need them are skipped." >&2
echo "servers: on Debian: apt-get install ${missing[*]}" >&2
[ -z "${CI:-}" ]
