
# COMMAND follows the options. Its words are completed as if it stood alone.
_elasticrun() {
    local -i index=2 start=0 ret=1
    if (( CURRENT > 2 )); then
        case $words[2] in
            (@SUBCOMMANDS@)
                _elasticrun_options "$@"
                return
                ;;
            (run)
                words[2]=()
                (( CURRENT -= 1 ))
                ;;
        esac
    fi
    while (( index < CURRENT )); do
        # Options with one dash have the same name with two.
        [[ $words[index] == (@SINGLE_DASH@)(|=*) ]] && words[index]=-$words[index]
        case $words[index] in
            (--)
                (( start = index + 1 ))
                break
                ;;
            (@TWO@) (( index += 3 )) ;;
            (@ONE@) (( index += 2 )) ;;
            (-?*) (( index += 1 )) ;;
            (*)
                (( start = index ))
                break
                ;;
        esac
    done
    if (( ! start && index == CURRENT )) && [[ $PREFIX != -* ]]; then
        (( start = CURRENT ))
    fi
    if (( ! start )); then
        _elasticrun_options "$@"
        return
    fi
    (( CURRENT == 2 )) && _elasticrun_commands && ret=0
    words=("${(@)words[start,-1]}")
    (( CURRENT -= start - 1 ))
    _normal && ret=0
    return ret
}

if [ "$funcstack[1]" = "_elasticrun" ]; then
    _elasticrun "$@"
else
    compdef _elasticrun elasticrun
fi
