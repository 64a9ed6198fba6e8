#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What the plugin uses of DevStack's functions, for tests where there is no
# DevStack.

function warn {
    echo "[WARNING] $2"
}

function die {
    echo "[ERROR] ${*:2}" >&2
    exit 1
}

# Configuration files

# The functions below start no process: each test calls them some forty times.

# _ini FILE SECTION OPTION ACTION [VALUE]: set INI_VALUES to the values of an
# option, and rewrite the file unless ACTION is print.
function _ini {
    local file=$1 section=$2 option=$3 action=$4 line name value inside=""
    local lines=()
    INI_VALUES=()
    while IFS="" read -r line || [[ -n $line ]]; do
        if [[ $line == "["* ]]; then
            lines+=("$line")
            inside=""
            if [[ $line == "[$section]" ]]; then
                inside=yes
                if [[ $action == "insert" ]]; then
                    lines+=("$option = $5")
                fi
            fi
            continue
        fi
        name=${line%%=*}
        name=${name%"${name##*[![:blank:]]}"}
        if [[ -z $inside || $line != *=* || $name != "$option" ]]; then
            lines+=("$line")
            continue
        fi
        value=${line#*=}
        value=${value#"${value%%[![:blank:]]*}"}
        INI_VALUES+=("$value")
        case $action in
            replace) lines+=("${line%"$value"}$5") ;;
            insert) lines+=("$line") ;;
        esac
    done <"$file"
    if [[ $action != "print" ]]; then
        printf "%s\n" "${lines[@]}" >"$file"
    fi
}

function _ini_make_section {
    local line
    if [[ -e $1 ]]; then
        while IFS="" read -r line || [[ -n $line ]]; do
            if [[ $line == "[$2]" ]]; then
                return 0
            fi
        done <"$1"
    fi
    printf "\n[%s]\n" "$2" >>"$1"
}

function iniget {
    _ini "$1" "$2" "$3" print
    echo "${INI_VALUES[0]}"
}

function iniget_multiline {
    _ini "$1" "$2" "$3" print
    echo "${INI_VALUES[*]}"
}

function ini_has_option {
    _ini "$1" "$2" "$3" print
    [[ ${#INI_VALUES[@]} -gt 0 ]]
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
