
# COMMAND follows the options. Its words are completed as if it stood alone.

# Prints what the cursor is at: options, value, or command and then the words of COMMAND before the cursor.
function __fish_elasticrun_position
    set -l words (commandline -opc)
    set -e words[1]
    if test "$words[1]" = run
        set -e words[1]
    end
    while set -q words[1]
        set -l length 1
        switch "$words[1]"
            case '--'
                set -e words[1]
                printf '%s\n' command $words
                return
            case @TWO@
                set length 3
            case @ONE@
                set length 2
            case '-*'
            case '*'
                printf '%s\n' command $words
                return
        end
        if test (count $words) -lt $length
            echo value
            return
        end
        set -e words[1..$length]
    end
    echo options
end

function __fish_elasticrun_is_first
    test (count (commandline -opc)) -eq 1
end

# Replaces the generated function: it fails behind the start of COMMAND, and prints the subcommand if there is one.
function __fish_elasticrun_needs_command
    set -l words (commandline -opc)
    if contains -- "$words[2]" @SUBCOMMANDS@
        echo $words[2]
        return 1
    end
    contains -- (__fish_elasticrun_position)[1] options value
end

function __fish_elasticrun_at_command
    set -l words (commandline -opc)
    if contains -- "$words[2]" @SUBCOMMANDS@
        return 1
    end
    contains -- (__fish_elasticrun_position)[1] options command
end

function __fish_elasticrun_command
    set -l words (__fish_elasticrun_position)
    set -e words[1]
    if set -q words[1]; or not string match -q -- '-*' (commandline -ct)
        complete --do-complete=(string join ' ' -- (string escape -- $words) (commandline -ct))
    end
end

complete -c elasticrun -n __fish_elasticrun_needs_command -o np -x -d 'Workers needed to start'
complete -c elasticrun -n __fish_elasticrun_at_command -f -a '(__fish_elasticrun_command)'
complete -c elasticrun -n '__fish_elasticrun_using_subcommand completions' -f -a 'bash zsh fish'
