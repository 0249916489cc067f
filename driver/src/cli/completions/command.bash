
# COMMAND follows the options. Its words are completed as if it stood alone.
_elasticrun_line() {
    local word prev index=1 values=0 start=0 here=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    if ((COMP_CWORD > 1)); then
        case ${COMP_WORDS[1]} in
            @SUBCOMMANDS@)
                _elasticrun "$@"
                return
                ;;
            run) index=2 ;;
        esac
    fi
    while ((index < COMP_CWORD)); do
        word=${COMP_WORDS[index]}
        if [[ $word == [=:]* ]]; then
            # readline cuts words at = and :, so that -H a:2 is four words.
            [[ $word == =* ]] && values=0
            ((index += 2))
        elif ((values > 0)); then
            ((values -= 1, index += 1))
        elif [[ $word == -- ]]; then
            ((start = index + 1))
            break
        elif [[ $word == -?* ]]; then
            case $word in
                @TWO@) values=2 ;;
                @ONE@) values=1 ;;
            esac
            ((index += 1))
        else
            start=$index
            break
        fi
    done
    if ((start == 0 && index == COMP_CWORD && values == 0)) && [[ $here != [-=:]* ]]; then
        start=$COMP_CWORD
    fi
    if ((start > 0)); then
        _elasticrun_command "$@"
        return
    fi

    # The value of an option stands behind it or behind its =.
    prev=${COMP_WORDS[COMP_CWORD - 1]}
    if [[ $here == = ]]; then
        here=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $here == [=:]* || $prev == [=:]* ]]; then
        # Within a value such as a:2.
        compopt +o default +o bashdefault 2>/dev/null
        return
    fi
    # Options with one dash have the same name with two.
    case $prev in
        @SINGLE_DASH@) prev=-$prev ;;
    esac
    local COMP_WORDS=("$1" "" "$2") COMP_CWORD=2
    _elasticrun "$1" "$2" "$prev"
    if ((values == 0)) && [[ -np == "$2"* ]]; then
        COMPREPLY+=(-np)
    fi
}

# COMMAND starts at the word `start`.
_elasticrun_command() {
    local IFS=$'|\n'
    if ((COMP_CWORD == 1)); then
        if [[ -z $2 ]]; then
            IFS=$' \t\n' _elasticrun "$@"
            return
        fi
        COMPREPLY=($(compgen -W '@SUBCOMMANDS@' -- "$2"))
    fi
    if ((COMP_CWORD == start)); then
        compopt -o filenames 2>/dev/null
        COMPREPLY+=($(compgen -c -- "$2"))
    elif declare -F _comp_command_offset >/dev/null; then
        IFS=$' \t\n' _comp_command_offset "$start"
    elif declare -F _command_offset >/dev/null; then
        IFS=$' \t\n' _command_offset "$start"
    fi
}

if [[ ${BASH_VERSINFO[0]} -eq 4 && ${BASH_VERSINFO[1]} -ge 4 || ${BASH_VERSINFO[0]} -gt 4 ]]; then
    complete -F _elasticrun_line -o nosort -o bashdefault -o default elasticrun
else
    complete -F _elasticrun_line -o bashdefault -o default elasticrun
fi
