#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs phases of the plugin as stack.sh, unstack.sh and clean.sh do, with the
# functions of the file $FUNCTIONS: DevStack's own, or those in standin.sh.
# Each argument is a mode, with a comma and a phase where the mode has phases.

# As in stack.sh: whatever fails ends it.
set -o errexit

# shellcheck source=tests/unit/devstack/standin.sh
source "$FUNCTIONS"
declare -A -g GITDIR

# What is in stack.sh and in lib/, not among the functions.
function echo_summary {
    echo "$@"
}

function recreate_database {
    rm -f "$DATA_DIR/$1.sqlite"
    touch "$DATA_DIR/$1.sqlite"
    echo "recreated $1"
}

function database_connection_url {
    echo "sqlite:///$DATA_DIR/$1.sqlite?timeout=7&cache=private"
}

# Above clones of plugins, DevStack keeps what it is configured with.
GITDIR[vswitch_aware_scheduler]=$PLUGIN_DIR
DEVSTACK_PLUGINS=,vswitch_aware_scheduler

load_plugin_settings
for call in "$@"; do
    IFS="," read -r mode phase <<<"$call"
    run_plugins "$mode" "$phase"
done
echo "ENABLED_SERVICES=$ENABLED_SERVICES"
