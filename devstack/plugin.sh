#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# DevStack plugin: puts VSwitchFilter and VSwitchWeigher into nova-scheduler,
# makes the store and runs the modeler. DevStack sources this file with a mode
# and a phase:
#
#   stack pre-install   refuse settings that cannot work
#   stack install       install this package beside nova
#   stack post-config   write the configuration, make the store
#   stack extra         start the modeler
#   stack test-config   tell tempest of the filter
#   unstack             stop the modeler
#   clean               take back all that stack has done
#
# Every phase may run again. What post-config adds to nova.conf is noted in
# $VSWITCH_CONF_DIR/added.conf, and "clean" removes that and nothing else:
# lists that others have added to keep the others' values.

VSWITCH_FILTER=vswitch_aware_scheduler.scheduler.filters.VSwitchFilter
VSWITCH_WEIGHER=vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher
VSWITCH_DATABASE=vswitch
VSWITCH_ADDED=$VSWITCH_CONF_DIR/added.conf

# Configuration files
# -------------------
#
# The notes are kept in the form of the file that they are about. An option
# of a section is noted as "was VALUE", or as "unset VALUE" where it was not
# there and VALUE has been filled in before ours.

# _vswitch_note FILE SECTION OPTION TEXT
function _vswitch_note {
    sudo install -d -o "$STACK_USER" "$VSWITCH_CONF_DIR"
    if [[ ! -e $VSWITCH_ADDED ]]; then
        install -m 0600 /dev/null "$VSWITCH_ADDED"
    fi
    # What was before us may have a password, as the URL of another store. An
    # earlier release made the file for all to read.
    chmod 0600 "$VSWITCH_ADDED"
    iniset "$VSWITCH_ADDED" "$(basename "$1"):$2" "$3" "$4"
}

# _vswitch_noted FILE SECTION OPTION
function _vswitch_noted {
    if [[ -f $VSWITCH_ADDED ]]; then
        iniget "$VSWITCH_ADDED" "$(basename "$1"):$2" "$3"
    fi
}

function _vswitch_has_section {
    local file=$1 section=$2
    grep -q "^\[$section\]" "$file" 2>/dev/null
}

# _vswitch_note_section FILE SECTION: note a section that is about to be made.
function _vswitch_note_section {
    local file=$1 section=$2
    if ! _vswitch_has_section "$file" "$section"; then
        _vswitch_note "$file" "$section" made_section yes
    fi
}

# _vswitch_set FILE SECTION OPTION VALUE: set an option of one value.
function _vswitch_set {
    local file=$1 section=$2 option=$3 value=$4
    local before="unset" noted
    if ini_has_option "$file" "$section" "$option"; then
        before=$(iniget "$file" "$section" "$option")
        if [[ "$before" == "$value" ]]; then
            return 0
        fi
        before="was $before"
    fi
    # A value that is there since an earlier run is not what was before us.
    noted=$(_vswitch_noted "$file" "$section" "$option")
    if [[ -z "$noted" || "$before" == "unset" ]]; then
        _vswitch_note_section "$file" "$section"
        _vswitch_note "$file" "$section" "$option" "$before"
    fi
    iniset "$file" "$section" "$option" "$value"
}

function _vswitch_unset {
    local file=$1 section=$2 option=$3
    case "$(_vswitch_noted "$file" "$section" "$option")" in
        unset*) inidelete "$file" "$section" "$option" ;;
        "was "*)
            iniset "$file" "$section" "$option" \
                "$(_vswitch_noted "$file" "$section" "$option" | cut -c5-)"
            ;;
    esac
}

# _vswitch_list_add FILE SECTION OPTION VALUE DEFAULT: append to an option
# whose values are separated by commas; to DEFAULT, where it is not set.
function _vswitch_list_add {
    local file=$1 section=$2 option=$3 value=$4 default=$5
    local values
    values=$(iniget "$file" "$section" "$option")
    if [[ ",${values//[[:space:]]/}," == *",$value,"* ]]; then
        return 0
    fi
    _vswitch_note_section "$file" "$section"
    if [[ -n "$values" ]]; then
        _vswitch_note "$file" "$section" "$option" "was $values"
    else
        _vswitch_note "$file" "$section" "$option" "unset $default"
        values=$default
    fi
    iniset "$file" "$section" "$option" "${values:+$values,}$value"
}

function _vswitch_list_remove {
    local file=$1 section=$2 option=$3 value=$4
    local noted item rest="" items
    noted=$(_vswitch_noted "$file" "$section" "$option")
    if [[ -z "$noted" ]]; then
        return 0
    fi
    IFS="," read -r -a items <<<"$(iniget "$file" "$section" "$option")"
    for item in "${items[@]}"; do
        if [[ "${item//[[:space:]]/}" != "$value" ]]; then
            rest+=${rest:+,}$item
        fi
    done
    if [[ -z "$rest" || "$noted" == "unset $rest" ]]; then
        inidelete "$file" "$section" "$option"
    else
        iniset "$file" "$section" "$option" "$rest"
    fi
}

# _vswitch_multi_add FILE SECTION OPTION VALUE DEFAULT: add a line of an option
# that has a line for each value; after those of DEFAULT, a list with commas,
# where it is not set.
function _vswitch_multi_add {
    local file=$1 section=$2 option=$3 value=$4 default=$5
    local values
    values=$(iniget_multiline "$file" "$section" "$option")
    if [[ " $values " == *" $value "* ]]; then
        return 0
    fi
    _vswitch_note_section "$file" "$section"
    if [[ -n "$values" ]]; then
        _vswitch_note "$file" "$section" "$option" "was $values"
        # Not iniadd, which would write the others' lines anew.
        iniadd_literal "$file" "$section" "$option" "$value"
    else
        _vswitch_note "$file" "$section" "$option" "unset ${default//,/ }"
        # shellcheck disable=SC2086 # one value a word
        iniset_multiline "$file" "$section" "$option" ${default//,/ } "$value"
    fi
}

function _vswitch_multi_remove {
    local file=$1 section=$2 option=$3 value=$4
    local noted rest
    noted=$(_vswitch_noted "$file" "$section" "$option")
    if [[ -z "$noted" ]]; then
        return 0
    fi
    # DevStack has no function that removes one of several lines.
    sed -i -e "/^\[${section}\]/,/^\[.*\]/ {
        /^${option}[ \t]*=[ \t]*${value//./\\.}[ \t]*\$/ d }" "$file"
    rest=$(iniget_multiline "$file" "$section" "$option")
    if [[ "$noted" == "unset $rest" ]]; then
        inidelete "$file" "$section" "$option"
    fi
}

# _vswitch_empty_section FILE SECTION: remove all options of a section that
# we have made. Only local.conf adds to one of this package.
function _vswitch_empty_section {
    if [[ "$(_vswitch_noted "$1" "$2" made_section)" == "yes" ]]; then
        sed -i -e "/^\[$2\]/,/^\[.*\]/ { /^\[/! { /./ d } }" "$1"
    fi
}

# _vswitch_drop_section FILE SECTION: remove the header of a section that we
# have made, and the empty line before it, unless something is left in it.
function _vswitch_drop_section {
    local file=$1 section=$2 content made kept
    content=$(sed -n -e "/^\[$section\]/,/^\[.*\]/ { /^\[/ d; p }" "$file")
    made=$(_vswitch_noted "$file" "$section" made_section)
    if [[ "$made" != "yes" || -n "${content//[[:space:]]/}" ]]; then
        return 0
    fi
    kept=$(mktemp)
    awk -v header="[$section]" '
        $0 == header { empty = 0; next }
        empty { print ""; empty = 0 }
        $0 == "" { empty = 1; next }
        { print }
        END { if (empty) print "" }' "$file" >"$kept"
    # Not mv: owner and mode of the file stay as they are.
    cat "$kept" >"$file"
    rm -f "$kept"
}

# What the phases do
# ------------------

function check_vswitch_settings {
    case $VSWITCH_STORE in
        sqlite|database|*://*) ;;
        *)
            die $LINENO "VSWITCH_STORE: '$VSWITCH_STORE'; expected sqlite," \
                "database or an SQLAlchemy URL"
            ;;
    esac
    case $VSWITCH_TELEMETRY in
        auto|gnocchi|prometheus|none|/*) ;;
        *)
            die $LINENO "VSWITCH_TELEMETRY: '$VSWITCH_TELEMETRY'; expected" \
                "auto, gnocchi, prometheus, none or an absolute path"
            ;;
    esac
    if ! "${PYTHON:-python3}" -c \
        "import sys; sys.exit(sys.version_info < (3, 11))"; then
        die $LINENO "vswitch_aware_scheduler needs Python 3.11 or newer," \
            "found $("${PYTHON:-python3}" --version)"
    fi
}

# _vswitch_telemetry: print where the modeler reads traffic: gnocchi,
# prometheus, none or a path.
function _vswitch_telemetry {
    if [[ $VSWITCH_TELEMETRY != "auto" ]]; then
        echo "$VSWITCH_TELEMETRY"
    elif is_service_enabled gnocchi-api; then
        echo gnocchi
    elif is_service_enabled prometheus; then
        echo prometheus
    else
        echo none
    fi
}

# _vswitch_set_profile SETTER FILE: set the switch profile, if there is one.
function _vswitch_set_profile {
    local profile=$VSWITCH_DEFAULT_SWITCH_PROFILE
    if [[ "$profile" == "auto" ]]; then
        # DevStack's default is OVN.
        [[ "${Q_AGENT:-ovn}" == "ovn" ]] && profile=ovs-geneve \
            || profile=ovs-vxlan
    fi
    if [[ "$profile" != "none" ]]; then
        "$1" "$2" vswitch_scheduler default_switch_profile "$profile"
    fi
}

# nova-api needs the package as well, to validate extra specs.
function install_vswitch {
    local extras=""
    if is_service_enabled n-sch; then
        # The modeler asks Nova which instances there are.
        extras="nova"
        if [[ $(_vswitch_telemetry) == "gnocchi" ]]; then
            extras="gnocchi,nova"
        fi
    fi
    if is_service_enabled n-sch n-api; then
        # shellcheck disable=SC2086 # no argument where there are no extras
        setup_develop "$VSWITCH_DIR" $extras
    fi
}

function _vswitch_store_url {
    case $VSWITCH_STORE in
        sqlite) echo "sqlite:///$VSWITCH_STATE_PATH/vswitch.sqlite" ;;
        database) database_connection_url "$VSWITCH_DATABASE" ;;
        *) echo "$VSWITCH_STORE" ;;
    esac
}

# _vswitch_nova_defaults OPTION ...: print what nova takes when an option of
# [filter_scheduler] is not set: a word for each, values separated by commas.
function _vswitch_nova_defaults {
    "${PYTHON:-python3}" - "$@" <<'END'
import sys

from nova import conf

conf.CONF([], default_config_files=[], default_config_dirs=[])
for option in sys.argv[1:]:
    print(','.join(conf.CONF.filter_scheduler[option]))
END
}

# Of the commands: made anew each time, as DevStack does with its own.
function _vswitch_configure_commands {
    sudo install -d -o "$STACK_USER" "$VSWITCH_CONF_DIR"
    rm -f "$VSWITCH_CONF"
    # It holds passwords: of the database, of the user that asks Gnocchi.
    install -m 0600 /dev/null "$VSWITCH_CONF"
    iniset "$VSWITCH_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    setup_logging "$VSWITCH_CONF"
    iniset "$VSWITCH_CONF" vswitch_scheduler store_url "$1"
    # The modeler and vswitch-status judge hosts as the scheduler does.
    _vswitch_set_profile iniset "$VSWITCH_CONF"
    # Telemetry is believed only about instances that Nova has.
    _vswitch_set_user "$VSWITCH_CONF" vswitch_inventory
    _vswitch_configure_telemetry "$VSWITCH_CONF" "$(_vswitch_telemetry)"
}

# _vswitch_set_user FILE SECTION: ask a service as the user nova, who is an
# administrator and sees all instances.
function _vswitch_set_user {
    local file=$1 section=$2
    iniset "$file" "$section" auth_type password
    iniset "$file" "$section" auth_url "$KEYSTONE_SERVICE_URI"
    iniset "$file" "$section" username nova
    iniset "$file" "$section" password "$SERVICE_PASSWORD"
    iniset "$file" "$section" project_name "$SERVICE_PROJECT_NAME"
    iniset "$file" "$section" user_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$file" "$section" project_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$file" "$section" region_name "$REGION_NAME"
    if is_service_enabled tls-proxy; then
        iniset "$file" "$section" cafile "$SSL_BUNDLE_FILE"
    fi
}

# _vswitch_configure_telemetry FILE TELEMETRY
function _vswitch_configure_telemetry {
    local file=$1 telemetry=$2 driver=$2
    case $telemetry in
        # The default of the option, without a URL: the modeler waits.
        none) return 0 ;;
        gnocchi)
            _vswitch_set_user "$file" vswitch_gnocchi
            ;;
        prometheus)
            iniset "$file" vswitch_prometheus endpoint_override \
                "${VSWITCH_PROMETHEUS_URL:-http://$SERVICE_HOST:9090}"
            ;;
        /*)
            driver="file"
            iniset "$file" vswitch_scheduler telemetry_path "$telemetry"
            ;;
    esac
    iniset "$file" vswitch_scheduler telemetry_driver "$driver"
}

function _vswitch_configure_nova {
    local store_url=$1 defaults
    defaults=$(_vswitch_nova_defaults available_filters enabled_filters \
        weight_classes)
    # shellcheck disable=SC2086 # three words
    set -- $defaults
    _vswitch_multi_add "$NOVA_CONF" filter_scheduler available_filters \
        "$VSWITCH_FILTER" "$1"
    _vswitch_list_add "$NOVA_CONF" filter_scheduler enabled_filters \
        "${VSWITCH_FILTER##*.}" "$2"
    _vswitch_list_add "$NOVA_CONF" filter_scheduler weight_classes \
        "$VSWITCH_WEIGHER" "$3"
    _vswitch_set "$NOVA_CONF" vswitch_scheduler store_url "$store_url"
    _vswitch_set_profile _vswitch_set "$NOVA_CONF"
}

function _vswitch_make_store {
    case $VSWITCH_STORE in
        sqlite)
            sudo install -d -m 0750 -o "$STACK_USER" "$VSWITCH_STATE_PATH"
            ;;
        # Emptied as nova's own databases are.
        database) recreate_database "$VSWITCH_DATABASE" ;;
    esac
    "$(get_python_exec_prefix)/vswitch-manage" \
        --config-file "$VSWITCH_CONF" db sync
}

function configure_vswitch {
    local store_url
    store_url=$(_vswitch_store_url)
    _vswitch_configure_commands "$store_url"
    _vswitch_make_store
    _vswitch_configure_nova "$store_url"
}

function start_vswitch {
    local command
    command=$(get_python_exec_prefix)/vswitch-modeler
    # nova-compute runs on a copy of nova.conf and has no use for the store.
    if [[ -f $NOVA_CPU_CONF && $NOVA_CPU_CONF != "$NOVA_CONF" ]]; then
        inidelete "$NOVA_CPU_CONF" vswitch_scheduler store_url
    fi
    if ! is_service_enabled vswitch-modeler; then
        return 0
    fi
    if [[ ! -x $command ]]; then
        warn $LINENO "no modeler: $command is missing, so that nothing fills \
the store but \"vswitch-manage fit\""
        return 0
    fi
    if [[ $(_vswitch_telemetry) == "none" ]]; then
        echo "vswitch-modeler waits for telemetry: there is neither Gnocchi \
nor Prometheus; see VSWITCH_TELEMETRY in devstack/README.rst"
    fi
    run_process vswitch-modeler "$command --config-file $VSWITCH_CONF"
}

# Tempest takes the list for the filters that it may rely on.
function configure_tempest_vswitch {
    local filters
    if [[ ! -f $TEMPEST_CONFIG ]]; then
        return 0
    fi
    filters=$(iniget "$TEMPEST_CONFIG" compute-feature-enabled \
        scheduler_enabled_filters)
    # Not set, or "all": ours is among them already.
    if [[ -n "$filters" && "$filters" != "all" ]]; then
        _vswitch_list_add "$TEMPEST_CONFIG" compute-feature-enabled \
            scheduler_enabled_filters "${VSWITCH_FILTER##*.}" "$filters"
    fi
}

function stop_vswitch {
    stop_process vswitch-modeler
}

function cleanup_vswitch {
    if [[ -f $NOVA_CONF ]]; then
        _vswitch_multi_remove "$NOVA_CONF" filter_scheduler \
            available_filters "$VSWITCH_FILTER"
        _vswitch_list_remove "$NOVA_CONF" filter_scheduler \
            enabled_filters "${VSWITCH_FILTER##*.}"
        _vswitch_list_remove "$NOVA_CONF" filter_scheduler \
            weight_classes "$VSWITCH_WEIGHER"
        _vswitch_unset "$NOVA_CONF" vswitch_scheduler store_url
        _vswitch_unset "$NOVA_CONF" vswitch_scheduler default_switch_profile
        _vswitch_empty_section "$NOVA_CONF" vswitch_scheduler
        _vswitch_drop_section "$NOVA_CONF" vswitch_scheduler
        _vswitch_drop_section "$NOVA_CONF" filter_scheduler
    fi
    if [[ -f $TEMPEST_CONFIG ]]; then
        _vswitch_list_remove "$TEMPEST_CONFIG" compute-feature-enabled \
            scheduler_enabled_filters "${VSWITCH_FILTER##*.}"
    fi
    # A database of ours goes with DevStack's server.
    sudo rm -f "$VSWITCH_CONF" "$VSWITCH_ADDED"
    sudo rm -rf "${VSWITCH_STATE_PATH:?}"
    if [[ -d $VSWITCH_CONF_DIR ]]; then
        sudo rmdir --ignore-fail-on-non-empty "$VSWITCH_CONF_DIR"
    fi
}

# Phases
# ------

case "$1 $2" in
    "stack pre-install")
        check_vswitch_settings
        ;;
    "stack install")
        echo_summary "Installing vswitch_aware_scheduler"
        install_vswitch
        ;;
    "stack post-config")
        if is_service_enabled n-sch; then
            echo_summary "Configuring vswitch_aware_scheduler"
            configure_vswitch
        fi
        ;;
    "stack extra")
        if is_service_enabled n-sch vswitch-modeler; then
            echo_summary "Starting vswitch_aware_scheduler"
            start_vswitch
        fi
        ;;
    "stack test-config")
        if is_service_enabled n-sch; then
            configure_tempest_vswitch
        fi
        ;;
    "unstack "*)
        stop_vswitch
        ;;
    "clean "*)
        cleanup_vswitch
        ;;
esac
