#!/usr/bin/env bash
# Puts the JavaScript that the console's pages load where the gateway serves it, from the npm packages that package.json
# names. Done once, and again when package.json says something new. Without npm the pages work, less lively.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
vendor=src/holdfast/console/static/vendor

if cmp -s package.json "$vendor/.made-from"; then
    exit 0
fi
if ! command -v npm > /dev/null; then
    echo "setup: there is no npm here; the console will have no live figures and no charts" >&2
    exit 0
fi
npm install --no-package-lock --no-audit --no-fund --silent
mkdir -p "$vendor"
cp node_modules/htmx.org/dist/htmx.min.js node_modules/uplot/dist/uPlot.iife.min.js node_modules/uplot/dist/uPlot.min.css "$vendor/"
cp package.json "$vendor/.made-from"
