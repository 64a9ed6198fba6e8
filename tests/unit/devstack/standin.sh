#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What the plugin uses of DevStack's functions, for tests where there is no
# DevStack. test_plugin.py compares what both do to a file where there is one.

function warn {
    echo "[WARNING] $2"
}

function die {
    echo "[ERROR] ${*:2}" >&2
    exit 1
}

# Configuration files

# _ini FILE SECTION OPTION ACTION [VALUE]: print the values of an option, or
# rewrite the file.
function _ini {
    local file=$1 program
    read -r -d "" program <<'END' || true
        function is_the_option(line) {
            return inside && sub(/[ \t]*=.*/, "", line) &&
                line == ENVIRON["OPTION"]
        }
        BEGIN { action = ENVIRON["ACTION"] }
        /^\[/ {
            inside = ($0 == "[" ENVIRON["SECTION"] "]")
            if (action != "print") { print }
            if (inside && action == "insert") {
                print ENVIRON["OPTION"] " = " ENVIRON["VALUE"]
            }
            next
        }
        is_the_option($0) {
            match($0, /=[ \t]*/)
            after = RSTART + RLENGTH
            if (action == "print") { print substr($0, after) }
            if (action == "replace") {
                print substr($0, 1, after - 1) ENVIRON["VALUE"]
            }
            if (action == "insert") { print }
            next
        }
        action != "print" { print }
END
    if [[ $4 == "print" ]]; then
        SECTION=$2 OPTION=$3 ACTION=$4 awk "$program" "$file"
    else
        SECTION=$2 OPTION=$3 ACTION=$4 VALUE=$5 awk "$program" "$file" \
            >"$file.new"
        cat "$file.new" >"$file"
        rm "$file.new"
    fi
}

function _ini_make_section {
    if ! grep -qxF "[$2]" "$1" 2>/dev/null; then
        printf '\n[%s]\n' "$2" >>"$1"
    fi
}

function iniget {
    _ini "$1" "$2" "$3" print | head -n 1
}

function iniget_multiline {
    _ini "$1" "$2" "$3" print | paste -s -d " "
}

function ini_has_option {
    [[ -n "$(_ini "$1" "$2" "$3" print | sed "s/^/=/")" ]]
}

function inidelete {
    _ini "$1" "$2" "$3" delete
}

function iniadd_literal {
    _ini "$1" "$2" "$3" insert "$4"
}

function iniset {
    _ini_make_section "$1" "$2"
    if ini_has_option "$1" "$2" "$3"; then
        _ini "$1" "$2" "$3" replace "$4"
    else
        _ini "$1" "$2" "$3" insert "$4"
    fi
}

function iniset_multiline {
    local number
    _ini_make_section "$1" "$2"
    inidelete "$1" "$2" "$3"
    for ((number = $#; number > 3; number--)); do
        iniadd_literal "$1" "$2" "$3" "${!number}"
    done
}

function setup_logging {
    iniset "$1" DEFAULT logging_default_format_string "%(message)s"
}

# Installation

function get_python_exec_prefix {
    echo "$DEVSTACK_VENV/bin"
}

function setup_develop {
    "$DEVSTACK_VENV/bin/pip" install -e "$1${2:+[$2]}"
}

# Services

function _is_listed {
    [[ ",$2," == *",$1,"* ]]
}

function is_service_enabled {
    local service
    for service in "$@"; do
        if _is_listed "$service" "$ENABLED_SERVICES"; then
            return 0
        fi
    done
    return 1
}

function enable_service {
    if _is_listed "$1" "$DISABLED_SERVICES"; then
        warn $LINENO "$1 is disabled"
    elif ! is_service_enabled "$1"; then
        ENABLED_SERVICES+=,$1
    fi
}

function run_process {
    if is_service_enabled "$1"; then
        iniset "$SYSTEMD_DIR/devstack@$1.service" Service ExecStart "$2"
        $SYSTEMCTL enable "devstack@$1.service"
        $SYSTEMCTL start "devstack@$1.service"
    fi
}

function stop_process {
    if is_service_enabled "$1" &&
        $SYSTEMCTL is-enabled "devstack@$1.service"; then
        $SYSTEMCTL stop "devstack@$1.service"
        $SYSTEMCTL disable "devstack@$1.service"
    fi
}

# Plugins

function define_plugin {
    echo "plugin $1"
}

function load_plugin_settings {
    local plugin
    for plugin in ${DEVSTACK_PLUGINS//,/ }; do
        # shellcheck source=devstack/settings
        source "${GITDIR[$plugin]}/devstack/settings"
    done
}

function run_plugins {
    local plugin
    for plugin in ${DEVSTACK_PLUGINS//,/ }; do
        # shellcheck source=devstack/plugin.sh
        source "${GITDIR[$plugin]}/devstack/plugin.sh" "$1" "$2"
    done
}
